#include "eval/tasks/data.h"

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <utility>

#include "report/parse_json.h"

namespace winnow::eval {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kByteOrderMark = "\xEF\xBB\xBF";

const char* TypeName(const report::Value& value) {
  constexpr const char* kNames[] = {"null",   "true or false", "a whole number", "a number",
                                    "a text", "a list",        "an object"};
  return kNames[value.data.index()];
}

Result<Row> MakeRow(report::Value value, std::string where) {
  auto* record = std::get_if<report::Record>(&value.data);
  if (record == nullptr) {
    return Error{where + ": found " + TypeName(value) + ", expected a JSON object"};
  }
  return Row(std::move(*record), std::move(where));
}

Result<std::vector<Row>> MakeRows(const report::List& list, const std::string& where) {
  std::vector<Row> rows;
  for (const report::Value& value : list) {
    WINNOW_ASSIGN(Row row, MakeRow(value, where + "[" + std::to_string(rows.size()) + "]"));
    rows.push_back(std::move(row));
  }
  return rows;
}

// Splits a CSV text into records of cells.
Result<std::vector<std::vector<std::string>>> CsvCells(std::string_view text,
                                                       const std::string& path) {
  std::vector<std::vector<std::string>> records;
  std::vector<std::string> record;
  std::string cell;
  bool quoted = false;
  for (size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (quoted) {
      if (c != '"') {
        cell += c;
      } else if (i + 1 < text.size() && text[i + 1] == '"') {
        cell += text[++i];
      } else {
        quoted = false;
      }
    } else if (c == '"' && cell.empty()) {
      quoted = true;
    } else if (c == ',') {
      record.push_back(std::exchange(cell, ""));
    } else if (c == '\n') {
      record.push_back(std::exchange(cell, ""));
      records.push_back(std::exchange(record, {}));
    } else if (c != '\r') {
      cell += c;
    }
  }
  if (quoted) return Error{path + ": a quoted cell of CSV is not closed"};
  if (!cell.empty() || !record.empty()) {
    record.push_back(std::move(cell));
    records.push_back(std::move(record));
  }
  return records;
}

}  // namespace

std::string ValueText(const report::Value& value) {
  if (const auto* text = std::get_if<std::string>(&value.data)) return *text;
  if (std::holds_alternative<std::monostate>(value.data)) return "";
  return report::ToJson(value);
}

Error Row::FormatError(std::string_view name, const char* expected) const {
  const report::Value* value = record_.Find(name);
  const std::string field = where_ + ": field '" + std::string(name) + "'";
  const std::string found =
      value == nullptr ? " is missing" : std::string(": found ") + TypeName(*value);
  return Error{field + found + ", expected " + expected};
}

Result<const report::Value*> Row::Field(std::string_view name) const {
  const report::Value* value = record_.Find(name);
  if (value == nullptr) {
    return Error{where_ + ": field '" + std::string(name) + "' is missing"};
  }
  return value;
}

Result<std::string> Row::Text(std::string_view name) const {
  const report::Value* value = record_.Find(name);
  const auto* text = value ? std::get_if<std::string>(&value->data) : nullptr;
  if (text == nullptr) return FormatError(name, "a text");
  return *text;
}

Result<int64_t> Row::Number(std::string_view name) const {
  const report::Value* value = record_.Find(name);
  const auto* number = value ? std::get_if<int64_t>(&value->data) : nullptr;
  if (number == nullptr) return FormatError(name, "a whole number");
  return *number;
}

Result<std::vector<std::string>> Row::Texts(std::string_view name) const {
  const report::Value* value = record_.Find(name);
  const auto* list = value ? std::get_if<report::List>(&value->data) : nullptr;
  if (list == nullptr) return FormatError(name, "a list of texts");
  std::vector<std::string> texts;
  for (const report::Value& item : *list) {
    const auto* text = std::get_if<std::string>(&item.data);
    if (text == nullptr) return FormatError(name, "a list of texts");
    texts.push_back(*text);
  }
  return texts;
}

Result<std::vector<Row>> Row::Rows(std::string_view name) const {
  const report::Value* value = record_.Find(name);
  const auto* list = value ? std::get_if<report::List>(&value->data) : nullptr;
  if (list == nullptr) return FormatError(name, "a list of objects");
  return MakeRows(*list, where_ + ": " + std::string(name));
}

Result<Row> Row::Object(std::string_view name) const {
  const report::Value* value = record_.Find(name);
  if (value == nullptr) return FormatError(name, "an object");
  return MakeRow(*value, where_ + ": " + std::string(name));
}

std::string Row::TextOrEmpty(std::string_view name) const {
  const report::Value* value = record_.Find(name);
  return value == nullptr ? "" : ValueText(*value);
}

Result<std::string> ReadWhole(const std::string& path) {
  std::error_code problem;
  if (fs::is_directory(path, problem)) return Error{path + ": is a directory, expected a file"};
  std::ifstream file(path, std::ios::binary);
  if (!file) return Error{path + ": cannot be read"};
  std::string text{std::istreambuf_iterator<char>(file), {}};
  if (file.bad()) return Error{path + ": cannot be read"};
  if (text.starts_with(kByteOrderMark)) text.erase(0, kByteOrderMark.size());
  return text;
}

Result<Row> ParseRow(std::string_view line, const std::string& where) {
  auto value = report::ParseJson(line);
  if (!value) {
    return Error{where + ": " + value.error().message + ", expected one JSON object per line"};
  }
  return MakeRow(std::move(value).value(), where);
}

Result<std::vector<Row>> ReadJsonLines(const std::string& path) {
  WINNOW_ASSIGN(const std::string text, ReadWhole(path));
  std::vector<Row> rows;
  std::string_view rest = text;
  for (int64_t line = 1; !rest.empty(); ++line) {
    const size_t end = rest.find('\n');
    const std::string_view content = rest.substr(0, end);
    rest.remove_prefix(end == std::string_view::npos ? rest.size() : end + 1);
    if (content.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    WINNOW_ASSIGN(Row row, ParseRow(content, FileName(path) + ":" + std::to_string(line)));
    rows.push_back(std::move(row));
  }
  return rows;
}

Result<std::vector<Row>> ReadJsonList(const std::string& path, std::string_view list) {
  WINNOW_ASSIGN(const std::string text, ReadWhole(path));
  auto value = report::ParseJson(text);
  if (!value) return Error{path + ": " + value.error().message};
  if (auto* record = std::get_if<report::Record>(&value->data); record != nullptr) {
    const Row row(std::move(*record), FileName(path));
    if (list.empty()) return std::vector<Row>{row};
    return row.Rows(list);
  }
  const auto* items = std::get_if<report::List>(&value->data);
  if (items == nullptr) {
    return Error{path + ": found " + TypeName(*value) + ", expected a list of objects"};
  }
  return MakeRows(*items, FileName(path));
}

Result<Row> ReadJsonObject(const std::string& path) {
  WINNOW_ASSIGN(const std::string text, ReadWhole(path));
  auto value = report::ParseJson(text);
  if (!value) return Error{path + ": " + value.error().message};
  return MakeRow(std::move(value).value(), FileName(path));
}

Result<std::vector<Row>> ReadCsv(const std::string& path, bool header) {
  WINNOW_ASSIGN(const std::string text, ReadWhole(path));
  WINNOW_ASSIGN(const auto records, CsvCells(text, FileName(path)));
  std::vector<Row> rows;
  for (size_t i = header ? 1 : 0; i < records.size(); ++i) {
    const std::string where = FileName(path) + ": record " + std::to_string(i + 1);
    if (header && records[i].size() != records[0].size()) {
      return Error{where + ": found " + std::to_string(records[i].size()) + " cells, expected " +
                   std::to_string(records[0].size()) + " as in the first line"};
    }
    report::Record record;
    for (size_t cell = 0; cell < records[i].size(); ++cell) {
      record.Add(header ? records[0][cell] : std::to_string(cell), records[i][cell]);
    }
    rows.emplace_back(std::move(record), where);
  }
  return rows;
}

Result<std::vector<std::string>> ListFiles(const std::string& data, std::string_view ending) {
  std::error_code problem;
  if (fs::is_regular_file(data, problem)) return std::vector<std::string>{data};
  if (!fs::is_directory(data, problem)) {
    return Error{data + ": neither a file nor a directory"};
  }
  std::vector<std::string> files;
  for (const fs::directory_entry& entry : fs::directory_iterator(data, problem)) {
    const std::string path = entry.path().string();
    if (entry.is_regular_file(problem) && path.ends_with(ending)) files.push_back(path);
  }
  std::sort(files.begin(), files.end());
  return files;
}

std::optional<std::string> FindIn(const std::string& data, const std::vector<std::string>& names) {
  std::error_code problem;
  if (fs::is_regular_file(data, problem)) return data;
  for (const std::string& name : names) {
    const std::string path = (fs::path(data) / name).string();
    if (fs::is_regular_file(path, problem)) return path;
  }
  return std::nullopt;
}

Error Missing(const std::string& data, std::string_view expected) {
  return Error{data + ": not found: " + std::string(expected)};
}

std::string FileName(const std::string& path) { return fs::path(path).filename().string(); }

}  // namespace winnow::eval
