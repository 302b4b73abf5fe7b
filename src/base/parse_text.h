#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

// Parses numbers and lists from user input. Errors say what was found and what was expected.
namespace winnow {

// Whole numbers, without text before or after them.
Result<int64_t> ParseInteger(std::string_view text);
Result<int64_t> ParsePositive(std::string_view text);  // 1 or more
Result<int64_t> ParseCount(std::string_view text);     // 0 or more

// "a,b,c". Errors: an empty word.
Result<std::vector<std::string>> ParseWords(std::string_view text);
// Numbers and ranges separated by commas: "1,2,8", "1-4", "0-1024+256", "1-16*2" (ends included).
// Errors: not a number, a range that does not end.
Result<std::vector<int64_t>> ParseRanges(std::string_view text);
// Bytes, as ParseByteSize reads them: "268435456", "256M".
Result<int64_t> ParseBytes(std::string_view text);

}  // namespace winnow
