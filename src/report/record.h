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

// Null, or one of what JSON knows. Strings are bytes: invalid UTF-8 prints as U+FFFD.
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

// A count, or a mean of counts: a whole number where it is one but for rounding, else to six
// decimals.
Value CountOrMean(double value);

// JSON in one line, or indented. NaN and infinities, which JSON lacks, are texts: "nan", "inf",
// "-inf".
std::string ToJson(const Value& value, int indent = -1);
// The number a value is, in the forms ToJson writes numbers: 3, 0.5, "nan". nullopt: no number.
std::optional<double> NumberIn(const Value& value);

// Tables: the columns are the fields of the first record; a record that lacks one leaves its cell
// empty. Lists and nested records are written as JSON.
std::string ToJsonLines(std::span<const Record> records);
std::string ToCsv(std::span<const Record> records);       // RFC 4180, with a header line
std::string ToMarkdown(std::span<const Record> records);  // columns padded; numbers to the right

}  // namespace winnow::report
