#include "grammar/schema_limits.h"

#include <algorithm>
#include <cstdint>
#include <string_view>

namespace winnow::grammar {
namespace {

using Json = nlohmann::ordered_json;

// xgrammar takes minutes and gigabytes for schemas of a megabyte, and cannot be interrupted.
constexpr size_t kMaxSchemaBytes = size_t{32} << 10;
constexpr size_t kMaxSchemaValues = 1000;
constexpr size_t kMaxSchemaDepth = 64;
constexpr size_t kMaxPatternBytes = 256;  // of all patterns
constexpr int kMaxCountedValues = 1000;   // minProperties or maxProperties times all values

Error TooLarge(const std::string& what, size_t found, size_t expected) {
  return Error{"the JSON schema has " + std::to_string(found) + " " + what + ", expected at most " +
               std::to_string(expected)};
}

struct SchemaSize {
  size_t values = 0, pattern_bytes = 0;
  double counted_properties = 0;  // the largest minProperties or maxProperties
};

// A repeated group that may itself repeat takes minutes: (a*b*)*.
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

Result<void> CheckPattern(const std::string& pattern, SchemaSize& size) {
  size.pattern_bytes += pattern.size();
  if (size.pattern_bytes > kMaxPatternBytes) {
    return TooLarge("or more bytes in patterns", size.pattern_bytes, kMaxPatternBytes);
  }
  if (RepeatsGroup(pattern)) {
    return Error{"the JSON schema: pattern '" + pattern +
                 "' repeats a group; only characters and classes can be repeated"};
  }
  return {};
}

Result<void> CheckValues(const Json& value, size_t depth, SchemaSize& size) {
  if (depth > kMaxSchemaDepth) return TooLarge("levels", depth, kMaxSchemaDepth);
  if (++size.values > kMaxSchemaValues) {
    return TooLarge("or more values", size.values, kMaxSchemaValues);
  }
  if (!value.is_structured()) return {};  // items() of a number is the number itself
  for (const auto& [name, inner] : value.items()) {
    if (value.is_object() && name == "pattern" && inner.is_string()) {
      WINNOW_TRY(CheckPattern(inner.get_ref<const std::string&>(), size));
    }
    // Its names are patterns.
    if (value.is_object() && name == "patternProperties" && inner.is_object()) {
      for (const auto& property : inner.items()) WINNOW_TRY(CheckPattern(property.key(), size));
    }
    const bool counts = value.is_object() && (name == "minProperties" || name == "maxProperties");
    if (counts && inner.is_number()) {
      size.counted_properties = std::max(size.counted_properties, inner.get<double>());
    }
    WINNOW_TRY(CheckValues(inner, depth + 1, size));
  }
  return {};
}

}  // namespace

Result<Json> ParseSchema(const std::string& what, const std::string& text) {
  if (text.size() > kMaxSchemaBytes) return TooLarge("bytes", text.size(), kMaxSchemaBytes);
  Json parsed = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  if (!parsed.is_object()) return Error{what + " is no JSON object"};
  SchemaSize size;
  WINNOW_TRY(CheckValues(parsed, 0, size));
  if (size.counted_properties * static_cast<double>(size.values) > kMaxCountedValues) {
    return Error{what + " counts up to " + std::to_string(size.counted_properties) +
                 " properties among " + std::to_string(size.values) +
                 " values, expected a product of at most " + std::to_string(kMaxCountedValues)};
  }
  return parsed;
}

}  // namespace winnow::grammar
