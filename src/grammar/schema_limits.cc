#include "grammar/schema_limits.h"

#include <algorithm>
#include <cstdint>
#include <string_view>

namespace winnow::grammar {
namespace {

using Json = nlohmann::ordered_json;

// xgrammar needs minutes and gigabytes for a schema of a megabyte. Most of its work is limited
// (work_limit.h), but not all.
constexpr size_t kMaxSchemaBytes = size_t{32} << 10;
constexpr size_t kMaxSchemaValues = 1000;
constexpr size_t kMaxSchemaDepth = 64;
constexpr size_t kMaxPatternBytes = 256;  // of all patterns
constexpr int kMaxCountedValues = 1000;   // minProperties or maxProperties times all values

Error TooLarge(const std::string& what, const std::string& unit, size_t found, size_t expected) {
  return Error{what + " has " + std::to_string(found) + " " + unit + ", expected at most " +
               std::to_string(expected)};
}

// Matching a repeated group with inner repetition takes minutes: (a*b*)*.
bool RepeatsGroup(const std::string& pattern) {
  for (size_t i = 0; i + 1 < pattern.size(); ++i) {
    if (pattern[i] == '\\') {
      ++i;
    } else if (pattern[i] == ')' &&
               std::string_view("*+{").find(pattern[i + 1]) != std::string_view::npos) {
      return true;
    }
  }
  return false;
}

Result<void> CheckPattern(const std::string& what, const std::string& pattern, SchemaSize& size) {
  size.pattern_bytes += pattern.size();
  if (size.pattern_bytes > kMaxPatternBytes) {
    return TooLarge(what, "or more bytes in patterns", size.pattern_bytes, kMaxPatternBytes);
  }
  if (RepeatsGroup(pattern)) {
    return Error{what + ": pattern '" + pattern +
                 "' repeats a group; only characters and classes can be repeated"};
  }
  return {};
}

Result<void> CheckValues(const std::string& what, const Json& value, size_t depth,
                         SchemaSize& size) {
  if (depth > kMaxSchemaDepth) return TooLarge(what, "levels", depth, kMaxSchemaDepth);
  if (++size.values > kMaxSchemaValues) {
    return TooLarge(what, "or more values", size.values, kMaxSchemaValues);
  }
  if (!value.is_structured()) return {};  // items() of a number is the number itself
  for (const auto& [name, inner] : value.items()) {
    if (value.is_object() && name == "pattern" && inner.is_string()) {
      WINNOW_TRY(CheckPattern(what, inner.get_ref<const std::string&>(), size));
    }
    // The names in patternProperties are patterns.
    if (value.is_object() && name == "patternProperties" && inner.is_object()) {
      for (const auto& property : inner.items())
        WINNOW_TRY(CheckPattern(what, property.key(), size));
    }
    const bool counts = value.is_object() && (name == "minProperties" || name == "maxProperties");
    if (counts && inner.is_number()) {
      size.counted_properties = std::max(size.counted_properties, inner.get<double>());
    }
    WINNOW_TRY(CheckValues(what, inner, depth + 1, size));
  }
  return {};
}

}  // namespace

Result<Json> ParseSchema(const std::string& what, const std::string& text, SchemaSize& size) {
  const std::string all = size.n_schemas == 0
                              ? what
                              : what + ", with the " + std::to_string(size.n_schemas) + " before,";
  ++size.n_schemas;
  size.bytes += text.size();
  if (size.bytes > kMaxSchemaBytes) return TooLarge(all, "bytes", size.bytes, kMaxSchemaBytes);
  Json parsed = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!parsed.is_object()) return Error{what + " is not a JSON object"};
  WINNOW_TRY(CheckValues(all, parsed, 0, size));
  if (size.counted_properties * static_cast<double>(size.values) > kMaxCountedValues) {
    return Error{all + " counts up to " +
                 std::to_string(static_cast<int64_t>(std::min(size.counted_properties, 1e15))) +
                 " properties among " + std::to_string(size.values) +
                 " values, expected a product of at most " + std::to_string(kMaxCountedValues)};
  }
  return parsed;
}

}  // namespace winnow::grammar
