#pragma once

#include <string_view>

#include "base/result.h"
#include "report/record.h"

namespace winnow::report {

// A JSON text as a Value: whole numbers that fit become int64_t, others double. Errors: not JSON
// (says at which byte), nested deeper than kMaxJsonLevels.
inline constexpr int kMaxJsonLevels = 100;
Result<Value> ParseJson(std::string_view text);

}  // namespace winnow::report
