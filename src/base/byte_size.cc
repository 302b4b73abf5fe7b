#include "base/byte_size.h"

#include <charconv>
#include <cmath>
#include <system_error>

namespace winnow {

std::optional<int64_t> ParseByteSize(std::string_view text) {
  if (text.empty()) return std::nullopt;
  double factor = 1;
  const char suffix = text.back();
  if (suffix == 'k' || suffix == 'K') factor = 1024;
  if (suffix == 'm' || suffix == 'M') factor = 1024.0 * 1024;
  if (suffix == 'g' || suffix == 'G') factor = 1024.0 * 1024 * 1024;
  if (factor != 1) text.remove_suffix(1);
  // from_chars also reads signs, exponents, "inf" and "nan".
  if (text.empty() || text.find_first_not_of("0123456789.") != std::string_view::npos) {
    return std::nullopt;
  }
  double amount = 0;
  const char* const end = text.data() + text.size();
  const auto [last, problem] = std::from_chars(text.data(), end, amount);
  if (problem != std::errc() || last != end) return std::nullopt;
  const double bytes = std::floor(amount * factor);
  if (!(bytes >= 1 && bytes <= 9e18)) return std::nullopt;
  return static_cast<int64_t>(bytes);
}

}  // namespace winnow
