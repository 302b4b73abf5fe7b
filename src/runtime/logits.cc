#include "runtime/logits.h"

#include <algorithm>
#include <limits>
#include <string>

#include "kernels/overflow.h"

namespace winnow::runtime {

Result<void> CheckLogits(Session& session) {
  int n_wrong = 0;
  // Counted without a branch, so that the loop is one of vectors; NaN compares as false.
  for (const float logit : session.logits()) {
    n_wrong += logit <= std::numeric_limits<float>::max() ? 0 : 1;
  }
  if (n_wrong == 0) return {};
  const std::string found = "the model gives NaN or infinity for " + std::to_string(n_wrong) +
                            " of " + std::to_string(session.logits().size()) + " logits after " +
                            std::to_string(session.n_tokens()) +
                            " tokens: no token can be chosen; ";
  if (kernels::NOverflowed(session.engine().backend()) > 0) {
    return Error{found + "values overflow the cache: try -ctk bf16 -ctv bf16"};
  }
  return Error{found + "--check-tensors looks for them in the weights"};
}

}  // namespace winnow::runtime
