#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "report/record.h"

// Reads the files data sets are published as. Errors say which file, which line, what was found and
// what was expected.
namespace winnow::eval {

// An object of a data file, and where it stands.
class Row {
 public:
  Row(report::Record record, std::string where)
      : record_(std::move(record)), where_(std::move(where)) {}

  const std::string& where() const { return where_; }  // "trec.jsonl:12"
  bool Has(std::string_view name) const { return record_.Find(name) != nullptr; }
  // Errors: no such field, or of another type.
  Result<std::string> Text(std::string_view name) const;
  Result<int64_t> Number(std::string_view name) const;
  Result<std::vector<std::string>> Texts(std::string_view name) const;  // a list of texts
  Result<std::vector<Row>> Rows(std::string_view name) const;           // a list of objects
  Result<Row> Object(std::string_view name) const;
  Result<const report::Value*> Field(std::string_view name) const;
  // A text, or a number written as one; empty if absent or of another type.
  std::string TextOrEmpty(std::string_view name) const;
  const report::Record& record() const { return record_; }
  Error FormatError(std::string_view name, const char* expected) const;

 private:
  report::Record record_;
  std::string where_;
};

// A number or text as text: 12 -> "12".
std::string ValueText(const report::Value& value);

// The bytes of a file. Error: cannot be read.
Result<std::string> ReadWhole(const std::string& path);
// A line that is an object; `where` is "trec.jsonl:12". Error: it is not.
Result<Row> ParseRow(std::string_view line, const std::string& where);
// One object per line; empty lines are skipped.
Result<std::vector<Row>> ReadJsonLines(const std::string& path);
// A file that is one JSON value: an object, or a list of objects, or an object whose field `list`
// is that list.
Result<std::vector<Row>> ReadJsonList(const std::string& path, std::string_view list = "");
Result<Row> ReadJsonObject(const std::string& path);
// RFC 4180. With `header` the first line names the fields; without, they are "0", "1", ...
Result<std::vector<Row>> ReadCsv(const std::string& path, bool header);

// Files of a directory (or the file itself) whose names end in `ending`, sorted by name; empty if
// there are none. Error: neither a file nor a directory.
Result<std::vector<std::string>> ListFiles(const std::string& data, std::string_view ending);
// The first of `names` that exists in the directory; nullopt if none does. If `data` is a file, it
// is the one.
std::optional<std::string> FindIn(const std::string& data, const std::vector<std::string>& names);
// The error of a file that is not there.
Error Missing(const std::string& data, std::string_view expected);
std::string FileName(const std::string& path);  // without folders

}  // namespace winnow::eval
