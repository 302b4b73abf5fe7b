#pragma once

#include <cstdint>
#include <limits>
#include <string_view>

#include "base/result.h"
#include "report/record.h"

namespace winnow::report {

// Parses JSON text: integers that fit become int64_t, other numbers double. Errors: not JSON (says
// at which byte), nested deeper than kMaxJsonLevels, more than `max_values` values. A value takes
// tens of bytes of memory but as few as two bytes of text, so limit untrusted input.
inline constexpr int kMaxJsonLevels = 100;
Result<Value> ParseJson(std::string_view text,
                        int64_t max_values = std::numeric_limits<int64_t>::max());

}  // namespace winnow::report
