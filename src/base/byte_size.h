#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace winnow {

// Parses a size in bytes: "268435456", "256M", "1.5g". k, M and G are powers of 1024; the result is
// rounded down. nullopt: another format, less than a byte, or more than 9e18.
std::optional<int64_t> ParseByteSize(std::string_view text);

}  // namespace winnow
