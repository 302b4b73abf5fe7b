#pragma once

#include <string_view>

namespace winnow::chat {

// JSON's white space (RFC 8259, 2).
inline constexpr std::string_view kJsonSpaces = " \n\r\t";

inline bool IsJsonSpace(char c) { return kJsonSpaces.find(c) != std::string_view::npos; }

}  // namespace winnow::chat
