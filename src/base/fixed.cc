#include "base/fixed.h"

#include <array>
#include <cmath>
#include <cstdio>

namespace winnow {

std::string Fixed(double value, int digits) {
  if (std::isnan(value)) return "nan";  // the sign of a NaN has no meaning
  std::array<char, 512> buffer;         // the largest doubles have 309 digits
  std::snprintf(buffer.data(), buffer.size(), "%.*f", digits, value);
  const std::string text = buffer.data();
  const bool nothing = text.find_first_of("123456789i") == std::string::npos;
  return nothing && text.front() == '-' ? text.substr(1) : text;
}

}  // namespace winnow
