#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace winnow {

// "268435456", "256M", "1.5g": bytes, rounded down; k, M and G are powers of 1024. nullopt: none of
// these, less than a byte, or more than 9e18.
std::optional<int64_t> ParseByteSize(std::string_view text);

}  // namespace winnow
