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

}  // namespace winnow
