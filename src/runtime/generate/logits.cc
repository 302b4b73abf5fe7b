#include "runtime/generate/logits.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <string>

#include "base/log_sum_exp.h"
#include "kernels/overflow.h"

namespace winnow::runtime {
namespace {

float Minus(float logit, double log_sum) {
  return static_cast<float>(static_cast<double>(logit) - log_sum);
}

}  // namespace

Probabilities ComputeProbabilities(std::span<const float> logits, TokenId token, int64_t n_top) {
  const double log_sum = LogSumExp(logits);
  Probabilities found = {.log_probability = Minus(logits[static_cast<size_t>(token)], log_sum)};
  std::vector<TokenId> tokens(logits.size());
  std::iota(tokens.begin(), tokens.end(), TokenId{0});
  const auto end = tokens.begin() + std::min(n_top, std::ssize(tokens));
  std::partial_sort(tokens.begin(), end, tokens.end(), [&](TokenId a, TokenId b) {
    const float first = logits[static_cast<size_t>(a)], second = logits[static_cast<size_t>(b)];
    return first != second ? first > second : a < b;
  });
  for (auto likely = tokens.begin(); likely != end; ++likely) {
    found.top.push_back({*likely, Minus(logits[static_cast<size_t>(*likely)], log_sum)});
  }
  return found;
}

Result<void> CheckLogits(Session& session) {
  int n_wrong = 0;
  // Counted without a branch, so that the compiler vectorizes the loop; NaN compares as false.
  for (const float logit : session.logits()) {
    n_wrong += logit <= std::numeric_limits<float>::max() ? 0 : 1;
  }
  if (n_wrong == 0) return {};
  const std::string found = "the model gives NaN or infinity for " + std::to_string(n_wrong) +
                            " of " + std::to_string(session.logits().size()) + " logits after " +
                            std::to_string(session.n_tokens()) +
                            " tokens: no token can be chosen; ";
  if (kernels::NOverflowed(session.engine().backend()) > 0) {
    return Error{.message = found + "values overflow the cache: try `keys` and `values` of bf16",
                 .code = ErrorCode::kInternal};
  }
  return Error{.message = found + "`check_tensors` looks for them in the weights",
               .code = ErrorCode::kInternal};
}

}  // namespace winnow::runtime
