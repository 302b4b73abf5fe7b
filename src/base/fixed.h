#pragma once

#include <string>

namespace winnow {

// With so many decimals, and no minus before what is then nothing; "nan", "inf", "-inf" for what is
// not finite.
std::string Fixed(double value, int digits);

}  // namespace winnow
