#pragma once

#include <string>
#include <string_view>

#include "base/result.h"

namespace winnow::jinja {

// Backslash escapes of a Python string literal; unknown ones stay as they are. Errors: digits that
// are missing, a code point that does not exist, \N{...}, whose names are not known here.
Result<std::string> Unescape(std::string_view text);

}  // namespace winnow::jinja
