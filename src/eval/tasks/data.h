#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "report/record.h"

// Reads data sets in the formats in which they are published. Errors say which file and line, what
// was found and what was expected.
namespace winnow::eval {

// An object of a data file, with its location.
class Row {
 public:
  Row(report::Record record, std::string where)
      : record_(std::move(record)), where_(std::move(where)) {}

  const std::string& where() const { return where_; }  // "trec.jsonl:12"
  bool Has(std::string_view name) const { return record_.Find(name) != nullptr; }
  // Errors: no such field, or it has another type.
  Result<std::string> Text(std::string_view name) const;
  Result<int64_t> Number(std::string_view name) const;
  Result<std::vector<std::string>> Texts(std::string_view name) const;  // a list of texts
  Result<std::vector<Row>> Rows(std::string_view name) const;           // a list of objects
  Result<Row> Object(std::string_view name) const;
  Result<const report::Value*> Field(std::string_view name) const;
  // A string as it is, another value as JSON; empty if absent or null.
  std::string TextOrEmpty(std::string_view name) const;
  const report::Record& record() const { return record_; }
  Error FormatError(std::string_view name, const char* expected) const;

 private:
  report::Record record_;
  std::string where_;
};

// A string as it is, null as "", another value as JSON: 12 -> "12".
std::string ValueText(const report::Value& value);

// The bytes of a file, without a byte order mark. Error: cannot be read.
Result<std::string> ReadWhole(const std::string& path);
// Parses a line that is an object; `where` is its location, "trec.jsonl:12". Error: it is not one.
Result<Row> ParseRow(std::string_view line, const std::string& where);
// One object per line; empty lines are skipped.
Result<std::vector<Row>> ReadJsonLines(const std::string& path);
// A file that is one JSON value: a list of objects, an object whose field `list` is such a list,
// or, without `list`, one object.
Result<std::vector<Row>> ReadJsonList(const std::string& path, std::string_view list = "");
Result<Row> ReadJsonObject(const std::string& path);
// RFC 4180. With `header` the first line names the fields; without, they are "0", "1", ...
Result<std::vector<Row>> ReadCsv(const std::string& path, bool header);

// Files of a directory (or the file itself) whose names end in `ending`, sorted by name; empty if
// there are none. Error: neither a file nor a directory.
Result<std::vector<std::string>> ListFiles(const std::string& data, std::string_view ending);
// The path of the first of `names` that exists in the directory `data`; nullopt if none does. If
// `data` is a file, its path.
std::optional<std::string> FindIn(const std::string& data, const std::vector<std::string>& names);
// The error for a missing file.
Error Missing(const std::string& data, std::string_view expected);
std::string FileName(const std::string& path);  // without folders

}  // namespace winnow::eval
