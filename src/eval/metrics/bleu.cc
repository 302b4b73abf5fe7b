#include "eval/metrics/bleu.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include "eval/metrics/normalise.h"
#include "eval/metrics/pattern.h"

namespace winnow::eval {
namespace {

constexpr size_t kOrders = 4;

// Tokenizes by mteval-v14's rules for all languages: punctuation is split off unless it stands
// between digits; symbols are always split off.
std::vector<std::string> Tokens(std::string_view text) {
  static const Pattern kAfterNoNumber("(?s)(\\P{N})(\\p{P})");
  static const Pattern kBeforeNoNumber("(?s)(\\p{P})(\\P{N})");
  static const Pattern kSymbol("(\\p{S})");
  const std::string apart =
      kBeforeNoNumber.Replace(kAfterNoNumber.Replace(text, "$1 $2 "), " $1 $2");
  return Words(kSymbol.Replace(apart, " $1 "));
}

std::map<std::vector<std::string>, int> CountNgrams(const std::vector<std::string>& tokens,
                                                    size_t order) {
  std::map<std::vector<std::string>, int> counts;
  for (size_t i = 0; i + order <= tokens.size(); ++i) {
    const auto begin = tokens.begin() + static_cast<ptrdiff_t>(i);
    ++counts[{begin, begin + static_cast<ptrdiff_t>(order)}];
  }
  return counts;
}

}  // namespace

double Bleu(std::string_view answer, std::string_view reference) {
  const std::vector<std::string> found = Tokens(answer);
  const std::vector<std::string> wanted = Tokens(reference);
  double log_sum = 0;
  double halving = 1;
  bool any = false;
  for (size_t order = 1; order <= kOrders; ++order) {
    const auto counts = CountNgrams(found, order);
    auto left = CountNgrams(wanted, order);
    int n_right = 0;
    for (const auto& [ngram, n] : counts) {
      const auto at = left.find(ngram);
      if (at != left.end()) n_right += std::min(n, at->second);
    }
    // Too short for this order, so the score is 0.
    if (found.size() < order) return 0;
    const auto total = static_cast<double>(found.size() - order + 1);
    any = any || n_right > 0;
    if (n_right == 0) halving *= 2;
    log_sum += std::log(100 * (n_right > 0 ? n_right : 1 / halving) / total);
  }
  if (!any) return 0;
  const double excess = static_cast<double>(wanted.size()) / static_cast<double>(found.size());
  const double brevity = excess > 1 ? std::exp(1 - excess) : 1;
  return brevity * std::exp(log_sum / kOrders);
}

}  // namespace winnow::eval
