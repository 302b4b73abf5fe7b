#include "table.h"

#include <algorithm>
#include <sstream>
#include <string_view>
#include <vector>

#include "console.h"

namespace winnow::apps {
namespace {

using report::Record;

size_t LineWidth(std::string_view line) {
  return static_cast<size_t>(
      std::count_if(line.begin(), line.end(), [](char c) { return (c & 0xC0) != 0x80; }));
}

size_t TableWidth(std::string_view table) { return LineWidth(table.substr(0, table.find('\n'))); }

// The rows restricted to these columns.
std::vector<Record> Only(std::span<const Record> rows, std::span<const size_t> columns) {
  std::vector<Record> some;
  for (const Record& row : rows) {
    Record& record = some.emplace_back();
    for (const size_t column : columns) {
      const std::string& name = rows.front().fields[column].name;
      if (const report::Value* value = row.Find(name)) record.Add(name, *value);
    }
  }
  return some;
}

std::string ShortestText(const report::Value& value) {
  const auto* text = std::get_if<std::string>(&value.data);
  if (std::holds_alternative<std::monostate>(value.data)) return "";
  return text != nullptr ? *text : report::ToJson(value);
}

// "name: text", wrapped to `width`; all lines but the first are indented.
std::string Wrapped(const std::string& text, size_t width) {
  constexpr std::string_view kIndent = "    ";
  std::istringstream words(text);
  std::string word, all, line;
  while (words >> word) {
    if (!line.empty() && LineWidth(line) + 1 + LineWidth(word) > width) {
      all += line + "\n";
      line = kIndent;
    } else if (!line.empty()) {
      line += ' ';
    }
    line += word;
  }
  return all + line + "\n";
}

std::string JoinNames(std::span<const Record> rows, size_t width) {
  std::string text;
  for (const Record& row : rows) {
    if (!text.empty()) text += "\n";
    for (const report::Field& field : row.fields) {
      const std::string cell = ShortestText(field.value);
      if (!cell.empty()) text += Wrapped(field.name + ": " + cell, width);
    }
  }
  return text;
}

}  // namespace

std::string TableWithin(std::span<const Record> rows, size_t n_keys, size_t width) {
  std::string whole = report::ToMarkdown(rows);
  if (rows.empty() || width == 0 || TableWidth(whole) <= width) return whole;
  const size_t n_columns = rows.front().fields.size();
  n_keys = std::min(n_keys, n_columns);
  std::vector<size_t> keys;
  for (size_t i = 0; i < n_keys; ++i) keys.push_back(i);
  std::string text;
  std::vector<size_t> columns = keys;
  std::string table;
  for (size_t i = n_keys; i < n_columns; ++i) {
    columns.push_back(i);
    std::string wider = report::ToMarkdown(Only(rows, columns));
    if (TableWidth(wider) <= width) {
      table = std::move(wider);
      continue;
    }
    if (!table.empty()) {
      text += table + "\n";
      table.clear();
      columns = keys;
      columns.push_back(i);
      table = report::ToMarkdown(Only(rows, columns));
    } else {
      table = std::move(wider);
    }
    if (TableWidth(table) > width) return JoinNames(rows, width);
  }
  return text + table;
}

void PrintTable(std::span<const Record> rows, size_t n_keys) {
  Print(TableWithin(rows, n_keys, TerminalWidth()));
}

}  // namespace winnow::apps
