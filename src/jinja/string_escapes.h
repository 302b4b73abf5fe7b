#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace winnow::jinja {

// Decodes the backslash escapes of a Python string literal; unknown ones stay as they are. Errors:
// missing digits, an invalid code point, \N{...} (character names are not supported).
Result<std::string> Unescape(std::string_view text);

}  // namespace winnow::jinja
