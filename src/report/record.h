#pragma once

#include <cstdint>
#include <initializer_list>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

// Results as values: a command or a benchmark fills Records, and this room prints them.
namespace winnow::report {

struct Field;
struct Value;
using List = std::vector<Value>;

// Named values in the order they were added.
struct Record {
  std::vector<Field> fields;

  Record() = default;
  Record(std::initializer_list<Field> initial);
  void Add(std::string name, Value value);
  void Append(Record other);                       // all of its fields
  const Value* Find(std::string_view name) const;  // null if absent
};

// A JSON value. Strings are bytes: invalid UTF-8 prints as U+FFFD.
struct Value {
  std::variant<std::monostate, bool, int64_t, double, std::string, List, Record> data;

  Value();
  Value(const Value& other);
  Value(Value&& other) noexcept;
  Value& operator=(const Value& other);
  Value& operator=(Value&& other) noexcept;
  ~Value();
  // NOLINTBEGIN(google-explicit-constructor): values are written in place
  Value(bool value);
  Value(int value);
  Value(int64_t value);
  Value(double value);
  Value(const char* value);
  Value(std::string_view value);
  Value(std::string value);
  Value(List value);
  Value(Record value);
  // NOLINTEND(google-explicit-constructor)
};

struct Field {
  std::string name;
  Value value;
};

template <typename T>
List MakeList(const T& items) {
  List list;
  for (const auto& item : items) list.emplace_back(item);
  return list;
}

// A count or a mean of counts: an integer if it is one up to rounding, otherwise rounded to six
// decimals.
Value CountOrMean(double value);

// JSON in one line, or indented. NaN and infinities, which JSON lacks, become the strings "nan",
// "inf" and "-inf".
std::string ToJson(const Value& value, int indent = -1);
// Reads a number back from the forms that ToJson writes: 3, 0.5, "nan". nullopt: not a number.
std::optional<double> NumberIn(const Value& value);

// Tables: the columns are the fields of the first record; a record without that field leaves the
// cell empty. Lists and nested records are written as JSON.
std::string ToJsonLines(std::span<const Record> records);
std::string ToCsv(std::span<const Record> records);       // RFC 4180, with a header line
std::string ToMarkdown(std::span<const Record> records);  // columns padded, numbers right-aligned

}  // namespace winnow::report
