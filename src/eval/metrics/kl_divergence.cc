#include "eval/metrics/kl_divergence.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "base/log_sum_exp.h"

namespace winnow::eval {

RowComparison RowComparison::Make(std::span<const float> logits,
                                  std::span<const float> base_log_probs, int32_t next) {
  WINNOW_CHECK(logits.size() == base_log_probs.size());
  constexpr float kMin = -16;
  constexpr float kStep = 16.0f / 65535;  // of log-probability files
  const double log_sum = LogSumExp(logits);
  RowComparison row;
  row.nll = log_sum - logits[static_cast<size_t>(next)];
  row.nll_base = -static_cast<double>(base_log_probs[static_cast<size_t>(next)]);
  row.p_difference = std::exp(-row.nll) - std::exp(-row.nll_base);
  for (size_t token = 0; token < logits.size(); ++token) {
    const double log_p_base = base_log_probs[token];
    if (log_p_base <= kMin) continue;
    // Rounded like the base's log-probability, so that equal logits give exactly 0.
    const double log_p = static_cast<float>(logits[token] - log_sum);
    row.kld += std::exp(log_p_base) * (log_p_base - log_p);
  }
  const auto top = [](std::span<const float> values) {
    return std::max_element(values.begin(), values.end()) - values.begin();
  };
  const auto [low, high] = std::minmax_element(base_log_probs.begin(), base_log_probs.end());
  row.clipped = *high - *low >= -kMin - kStep &&
                base_log_probs[static_cast<size_t>(next)] <= *low + kStep / 2;
  row.same_top = !std::isnan(row.kld) && top(logits) == top(base_log_probs);
  return row;
}

void KlDivergence::Add(const RowComparison& row) {
  nll_.Add(row.nll);
  nll_base_.Add(row.nll_base);
  if (row.clipped) ++n_clipped_;
  log_ratio_.Add((row.clipped ? std::min(row.nll, row.nll_base) : row.nll) - row.nll_base);
  kld_.Add(row.kld);
  p_difference_.Add(row.p_difference);
  squared_p_difference_.Add(row.p_difference * row.p_difference);
  same_top_.Add(row.same_top ? 1 : 0);
  klds_.push_back(static_cast<float>(row.kld));
}

double KlDivergence::rms_p_difference() const { return std::sqrt(squared_p_difference_.mean()); }

std::vector<float> KlDivergence::SortedKlds() const {
  std::vector<float> sorted = klds_;
  // NaN sorts above all numbers: with NaN, `<` alone is not a strict weak order.
  std::sort(sorted.begin(), sorted.end(),
            [](float a, float b) { return a < b || (std::isnan(b) && !std::isnan(a)); });
  return sorted;
}

}  // namespace winnow::eval
