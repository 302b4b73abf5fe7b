#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "base/result.h"

namespace winnow::grammar {

// A JSON schema that xgrammar compiles within seconds; `what` begins messages. Errors: no JSON
// object, too large (GrammarSet::JsonSchema has the limits).
Result<nlohmann::ordered_json> ParseSchema(const std::string& what, const std::string& text);

}  // namespace winnow::grammar
