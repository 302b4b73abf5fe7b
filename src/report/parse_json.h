#pragma once

#include <cstdint>
#include <limits>
#include <string_view>

#include "base/result.h"
#include "report/record.h"

namespace winnow::report {

// A JSON text as a Value: whole numbers that fit become int64_t, others double. Errors: not JSON
// (says at which byte), nested deeper than kMaxJsonLevels, more than `max_values` values: one
// takes tens of bytes, and as few as two of the text.
inline constexpr int kMaxJsonLevels = 100;
Result<Value> ParseJson(std::string_view text,
                        int64_t max_values = std::numeric_limits<int64_t>::max());

}  // namespace winnow::report
