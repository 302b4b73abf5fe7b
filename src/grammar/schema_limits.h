#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>

#include "base/result.h"

namespace winnow::grammar {

// The size of all schemas of a grammar together.
struct SchemaSize {
  size_t n_schemas = 0, bytes = 0, values = 0, pattern_bytes = 0;
  double counted_properties = 0;  // the largest minProperties or maxProperties
};

// Parses a JSON schema and checks that it is not too large for xgrammar, together with the schemas
// that `size` counts already. `what` begins error messages. Errors: not a JSON object, too large
// (limits: GrammarSet::JsonSchema).
Result<nlohmann::ordered_json> ParseSchema(const std::string& what, const std::string& text,
                                           SchemaSize& size);

}  // namespace winnow::grammar
