#include "server/openai/testing/json_paths.h"

#include <gtest/gtest.h>

#include <sstream>

namespace winnow::server::testing {
namespace {

// nullopt: absent.
std::optional<report::Value> Find(const report::Record& record, const std::string& path) {
  std::istringstream parts(path);
  const report::Value root = record;
  const report::Value* at = &root;
  for (std::string part; std::getline(parts, part, '.');) {
    if (const auto* inner = std::get_if<report::Record>(&at->data)) {
      at = inner->Find(part);
    } else if (const auto* list = std::get_if<report::List>(&at->data)) {
      const size_t i = std::stoul(part);
      at = i < list->size() ? &(*list)[i] : nullptr;
    } else {
      at = nullptr;
    }
    if (at == nullptr) return std::nullopt;
  }
  return *at;
}

}  // namespace

report::Value At(const report::Record& record, const std::string& path) {
  const auto value = Find(record, path);
  EXPECT_TRUE(value.has_value()) << path << " is not in " << report::ToJson(record);
  return value.value_or(report::Value());
}
std::string TextAt(const report::Record& record, const std::string& path) {
  const report::Value value = At(record, path);
  const auto* text = std::get_if<std::string>(&value.data);
  EXPECT_NE(text, nullptr) << path << " is no text in " << report::ToJson(record);
  return text == nullptr ? "" : *text;
}
int64_t IntAt(const report::Record& record, const std::string& path) {
  const report::Value value = At(record, path);
  const auto* number = std::get_if<int64_t>(&value.data);
  EXPECT_NE(number, nullptr) << path << " is no whole number in " << report::ToJson(record);
  return number == nullptr ? -1 : *number;
}
bool Has(const report::Record& record, const std::string& path) {
  return Find(record, path).has_value();
}

}  // namespace winnow::server::testing
