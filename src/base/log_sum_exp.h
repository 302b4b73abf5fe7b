#pragma once

#include <span>

namespace winnow {

// log(sum of exp(values)), in double; NaN where a value is. Requires: not empty.
double LogSumExp(std::span<const float> values);

}  // namespace winnow
