#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "report/record.h"

namespace winnow::server::testing {

// A value inside nested objects and lists: "choices.0.message.content". Fails the test if it is
// absent.
report::Value At(const report::Record& record, const std::string& path);
std::string TextAt(const report::Record& record, const std::string& path);
int64_t IntAt(const report::Record& record, const std::string& path);
bool Has(const report::Record& record, const std::string& path);

}  // namespace winnow::server::testing
