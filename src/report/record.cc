#include "report/record.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <nlohmann/json.hpp>

namespace winnow::report {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kNan = "nan", kInfinity = "inf", kMinusInfinity = "-inf";

// The name that stands for a number that JSON cannot express.
std::string_view NonFiniteName(double value) {
  if (std::isnan(value)) return kNan;
  return value > 0 ? kInfinity : kMinusInfinity;
}

Json Convert(const Value& value) {
  return std::visit(
      [](const auto& data) -> Json {
        using T = std::decay_t<decltype(data)>;
        if constexpr (std::is_same_v<T, std::monostate>) {
          return nullptr;
        } else if constexpr (std::is_same_v<T, double>) {
          return std::isfinite(data) ? Json(data) : Json(NonFiniteName(data));
        } else if constexpr (std::is_same_v<T, List>) {
          Json array = Json::array();
          for (const Value& item : data) array.push_back(Convert(item));
          return array;
        } else if constexpr (std::is_same_v<T, Record>) {
          // Append to the underlying vector: ordered_json searches all names for each new one.
          Json::object_t object;
          object.reserve(data.fields.size());
          for (const Field& field : data.fields) {
            object.emplace_back(field.name, Convert(field.value));
          }
          return object;
        } else {
          return data;
        }
      },
      value.data);
}

std::string Dump(const Json& json, int indent) {
  return json.dump(indent, ' ', false, Json::error_handler_t::replace);
}

// A table cell: strings as they are, null as an empty cell, the rest as JSON.
std::string Cell(const Value& value) {
  if (const auto* text = std::get_if<std::string>(&value.data)) return *text;
  if (std::holds_alternative<std::monostate>(value.data)) return {};
  const auto* number = std::get_if<double>(&value.data);
  if (number != nullptr && !std::isfinite(*number)) return std::string(NonFiniteName(*number));
  return ToJson(value);
}

bool IsNumber(const Value& value) {
  return std::holds_alternative<int64_t>(value.data) || std::holds_alternative<double>(value.data);
}

std::string QuotedForCsv(const std::string& cell) {
  if (cell.find_first_of(",\"\r\n") == std::string::npos) return cell;
  std::string quoted = "\"";
  for (const char c : cell) {
    if (c == '"') quoted += '"';
    quoted += c;
  }
  return quoted + '"';
}

std::string EscapedForMarkdown(const std::string& cell) {
  std::string escaped;
  for (const char c : cell) {
    if (c == '|') escaped += '\\';
    escaped += c == '\n' ? ' ' : c;
  }
  return escaped;
}

// Terminal columns: counts characters, not bytes.
size_t Width(const std::string& text) {
  return static_cast<size_t>(
      std::count_if(text.begin(), text.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

}  // namespace

// Out of line: g++ 12 warns of uninitialised members where it inlines a recursive variant.
Value::Value() = default;
Value::Value(const Value& other) = default;
Value::Value(Value&& other) noexcept = default;
Value& Value::operator=(const Value& other) = default;
Value& Value::operator=(Value&& other) noexcept = default;
Value::~Value() = default;
Value::Value(bool value) : data(value) {}
Value::Value(int value) : data(static_cast<int64_t>(value)) {}
Value::Value(int64_t value) : data(value) {}
Value::Value(double value) : data(value) {}
Value::Value(const char* value) : data(std::string(value)) {}
Value::Value(std::string_view value) : data(std::string(value)) {}
Value::Value(std::string value) : data(std::move(value)) {}
Value::Value(List value) : data(std::move(value)) {}
Value::Value(Record value) : data(std::move(value)) {}

Record::Record(std::initializer_list<Field> initial) : fields(initial) {}

void Record::Add(std::string name, Value value) {
  fields.push_back({std::move(name), std::move(value)});
}

void Record::Append(Record other) {
  for (Field& field : other.fields) fields.push_back(std::move(field));
}

const Value* Record::Find(std::string_view name) const {
  const auto found = std::find_if(fields.begin(), fields.end(),
                                  [&](const Field& field) { return field.name == name; });
  return found == fields.end() ? nullptr : &found->value;
}

Value CountOrMean(double value) {
  constexpr double kLargest = 1e15;  // above this, a double has hardly any decimals to round
  if (!(std::abs(value) < kLargest)) return value;
  const double rounded = std::round(value * 1e6) / 1e6;
  if (rounded == std::floor(rounded)) return static_cast<int64_t>(rounded);
  return rounded;
}

std::string ToJson(const Value& value, int indent) { return Dump(Convert(value), indent); }

std::optional<double> NumberIn(const Value& value) {
  if (const auto* whole = std::get_if<int64_t>(&value.data)) return static_cast<double>(*whole);
  if (const auto* number = std::get_if<double>(&value.data)) return *number;
  const auto* text = std::get_if<std::string>(&value.data);
  if (text == nullptr) return std::nullopt;
  if (*text == kNan) return std::numeric_limits<double>::quiet_NaN();
  if (*text == kInfinity) return std::numeric_limits<double>::infinity();
  if (*text == kMinusInfinity) return -std::numeric_limits<double>::infinity();
  return std::nullopt;
}

std::string ToJsonLines(std::span<const Record> records) {
  std::string text;
  for (const Record& record : records) text += ToJson(record) + "\n";
  return text;
}

std::string ToCsv(std::span<const Record> records) {
  if (records.empty()) return {};
  std::string text;
  const std::vector<Field>& columns = records[0].fields;
  for (const Field& column : columns) {
    text += (text.empty() ? "" : ",") + QuotedForCsv(column.name);
  }
  text += "\n";
  for (const Record& record : records) {
    for (size_t i = 0; i < columns.size(); ++i) {
      if (i > 0) text += ",";
      if (const Value* value = record.Find(columns[i].name)) text += QuotedForCsv(Cell(*value));
    }
    text += "\n";
  }
  return text;
}

std::string ToMarkdown(std::span<const Record> records) {
  if (records.empty()) return {};
  struct Column {
    std::vector<std::string> cells;
    size_t width = 3;
    bool right = true;
  };
  std::vector<Column> columns;
  for (const Field& field : records[0].fields) {
    Column column;
    column.cells.push_back(EscapedForMarkdown(field.name));
    for (const Record& record : records) {
      const Value* value = record.Find(field.name);
      column.cells.push_back(value == nullptr ? "" : EscapedForMarkdown(Cell(*value)));
      if (value != nullptr && !IsNumber(*value)) column.right = false;
    }
    for (const std::string& cell : column.cells) column.width = std::max(column.width, Width(cell));
    columns.push_back(std::move(column));
  }
  std::string text;
  for (size_t row = 0; row <= records.size(); ++row) {
    for (const Column& column : columns) {
      const std::string padding(column.width - Width(column.cells[row]), ' ');
      const std::string& cell = column.cells[row];
      text += "| " + (column.right ? padding + cell : cell + padding) + " ";
    }
    text += "|\n";
    if (row > 0) continue;
    for (const Column& column : columns) {
      text += "| " + std::string(column.width - 1, '-') + (column.right ? ": " : "- ");
    }
    text += "|\n";
  }
  return text;
}

}  // namespace winnow::report
