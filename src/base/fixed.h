#pragma once

#include <string>

namespace winnow {

// `value` with `digits` decimals; a result of zero has no minus sign. Non-finite values: "nan",
// "inf", "-inf".
std::string Fixed(double value, int digits);

}  // namespace winnow
