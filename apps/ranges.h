#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace winnow::apps {

// "a,b,c". Errors: an empty word.
Result<std::vector<std::string>> ParseWords(std::string_view text);

// Numbers and ranges separated by commas: "1,2,8", "1-4", "0-1024+256", "1-16*2" (ends included).
// Errors: not a number, a range that does not end.
Result<std::vector<int64_t>> ParseRanges(std::string_view text);

}  // namespace winnow::apps
