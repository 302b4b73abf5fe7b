#include "server/openai/fields.h"

#include <cmath>
#include <utility>

namespace winnow::server {
namespace {

std::string Shown(double value) {
  std::string text = std::to_string(value);
  while (text.size() > 1 && text.back() == '0') text.pop_back();
  if (text.back() == '.') text.pop_back();
  return text;
}

// Accepts 3 and 3.0.
std::optional<int64_t> WholeNumber(const report::Value& value) {
  if (const auto* integer = std::get_if<int64_t>(&value.data)) return *integer;
  const auto* number = std::get_if<double>(&value.data);
  constexpr double kExact = 9007199254740992.0;  // 2^53: doubles hold all whole numbers up to it
  if (number == nullptr || *number != std::floor(*number) || std::abs(*number) > kExact) {
    return std::nullopt;
  }
  return static_cast<int64_t>(*number);
}

}  // namespace

const char* KindName(const report::Value& value) {
  constexpr const char* kKinds[] = {"null",   "true or false", "a whole number", "a number",
                                    "a text", "a list",        "an object"};
  return kKinds[value.data.index()];
}

Fields::Fields(const report::Record& record, std::string path)
    : record_(record), path_(std::move(path)) {}

const report::Value* Fields::Find(std::string_view name) const {
  const report::Value* value = record_.Find(name);
  if (value == nullptr || std::holds_alternative<std::monostate>(value->data)) return nullptr;
  return value;
}

void Fields::Fail(ApiError error) {
  if (!error_) error_ = std::move(error);
}

void Fields::Fail(std::string_view name, const std::string& message, std::string code) {
  const std::string param = path_ + std::string(name);
  Fail({.status = 400, .message = param + ": " + message, .param = param, .code = std::move(code)});
}

void Fields::FailType(std::string_view name, const char* expected) {
  Fail(name, std::string("found ") + KindName(*Find(name)) + ", expected " + expected,
       "invalid_type");
}

std::optional<bool> Fields::Bool(std::string_view name) {
  const report::Value* value = Find(name);
  if (value == nullptr) return std::nullopt;
  const auto* found = std::get_if<bool>(&value->data);
  if (found == nullptr) {
    FailType(name, "true or false");
    return std::nullopt;
  }
  return *found;
}

std::optional<int64_t> Fields::Integer(std::string_view name, int64_t low, int64_t high) {
  const report::Value* value = Find(name);
  if (value == nullptr) return std::nullopt;
  const std::optional<int64_t> found = WholeNumber(*value);
  if (!found) {
    FailType(name, "a whole number");
    return std::nullopt;
  }
  if (*found < low || *found > high) {
    const bool open = high == std::numeric_limits<int64_t>::max();
    Fail(name, "found " + std::to_string(*found) + ", expected " + std::to_string(low) +
                   (open ? " or more" : " to " + std::to_string(high)));
    return std::nullopt;
  }
  return found;
}

std::optional<double> Fields::Number(std::string_view name, double low, double high) {
  const report::Value* value = Find(name);
  if (value == nullptr) return std::nullopt;
  double found = 0;
  if (const auto* integer = std::get_if<int64_t>(&value->data)) {
    found = static_cast<double>(*integer);
  } else if (const auto* number = std::get_if<double>(&value->data)) {
    found = *number;
  } else {
    FailType(name, "a number");
    return std::nullopt;
  }
  if (!(found >= low && found <= high)) {
    Fail(name, "found " + Shown(found) + ", expected " + Shown(low) + " to " + Shown(high));
    return std::nullopt;
  }
  return found;
}

std::optional<std::string> Fields::Text(std::string_view name) {
  const report::Value* value = Find(name);
  if (value == nullptr) return std::nullopt;
  const auto* found = std::get_if<std::string>(&value->data);
  if (found == nullptr) {
    FailType(name, "a text");
    return std::nullopt;
  }
  return *found;
}

std::vector<std::string> Fields::Texts(std::string_view name, size_t max_count) {
  const report::Value* value = Find(name);
  if (value == nullptr) return {};
  if (const auto* text = std::get_if<std::string>(&value->data)) return {*text};
  const auto* list = std::get_if<report::List>(&value->data);
  if (list == nullptr) {
    FailType(name, "a text or a list of texts");
    return {};
  }
  if (list->size() > max_count) {
    Fail(name, "found " + std::to_string(list->size()) + " texts, expected at most " +
                   std::to_string(max_count));
    return {};
  }
  std::vector<std::string> texts;
  for (const report::Value& item : *list) {
    const auto* text = std::get_if<std::string>(&item.data);
    if (text == nullptr) {
      Fail(name, std::string("found ") + KindName(item) + " in the list, expected texts",
           "invalid_type");
      return {};
    }
    texts.push_back(*text);
  }
  return texts;
}

const report::Record* Fields::Object(std::string_view name) {
  const report::Value* value = Find(name);
  if (value == nullptr) return nullptr;
  const auto* found = std::get_if<report::Record>(&value->data);
  if (found == nullptr) FailType(name, "an object");
  return found;
}

const report::List* Fields::Array(std::string_view name) {
  const report::Value* value = Find(name);
  if (value == nullptr) return nullptr;
  const auto* found = std::get_if<report::List>(&value->data);
  if (found == nullptr) FailType(name, "a list");
  return found;
}

}  // namespace winnow::server
