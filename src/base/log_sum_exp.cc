#include "base/log_sum_exp.h"

#include <algorithm>
#include <cmath>

namespace winnow {

double LogSumExp(std::span<const float> values) {
  const double largest = *std::ranges::max_element(values);
  double sum = 0;
  for (const float value : values) sum += std::exp(value - largest);
  return largest + std::log(sum);
}

void LogSoftmax(std::span<const float> logits, std::span<float> log_probs) {
  const double log_sum = LogSumExp(logits);
  std::ranges::transform(logits, log_probs.begin(),
                         [log_sum](float logit) { return static_cast<float>(logit - log_sum); });
}

}  // namespace winnow
