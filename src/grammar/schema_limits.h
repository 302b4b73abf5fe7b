#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>

#include "base/result.h"

namespace winnow::grammar {

// Of all schemas of a grammar together.
struct SchemaSize {
  size_t n_schemas = 0, bytes = 0, values = 0, pattern_bytes = 0;
  double counted_properties = 0;  // the largest minProperties or maxProperties
};

// A JSON schema that xgrammar compiles within seconds, with those that `size` has counted before;
// `what` begins messages. Errors: no JSON object, too large (GrammarSet::JsonSchema has the
// limits).
Result<nlohmann::ordered_json> ParseSchema(const std::string& what, const std::string& text,
                                           SchemaSize& size);

}  // namespace winnow::grammar
