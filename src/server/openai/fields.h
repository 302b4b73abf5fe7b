#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "report/record.h"
#include "server/openai/api_error.h"

namespace winnow::server {

// Reads the fields of a request. Each call returns the field's value, or nullopt if it is absent or
// null. The first invalid value is kept as error(), and later results are meaningless: a parser
// reads all its fields and checks once at the end. Unknown fields are ignored, as OpenAI does.
class Fields {
 public:
  // `path` is put before names in messages: "messages[2].".
  explicit Fields(const report::Record& record, std::string path = {});

  std::optional<bool> Bool(std::string_view name);
  // 3 and 3.0 are whole numbers, "3" is not.
  std::optional<int64_t> Integer(std::string_view name,
                                 int64_t low = std::numeric_limits<int64_t>::min(),
                                 int64_t high = std::numeric_limits<int64_t>::max());
  std::optional<double> Number(std::string_view name, double low, double high);
  std::optional<std::string> Text(std::string_view name);
  // A text or a list of texts.
  std::vector<std::string> Texts(std::string_view name, size_t max_count);
  // Null if absent. The pointer is valid as long as the record.
  const report::Record* Object(std::string_view name);
  const report::List* Array(std::string_view name);
  // The raw value; null if absent or JSON's null.
  const report::Value* Find(std::string_view name) const;

  void Fail(std::string_view name, const std::string& message, std::string code = {});
  void Fail(ApiError error);
  bool ok() const { return !error_.has_value(); }
  const std::optional<ApiError>& error() const { return error_; }
  const std::string& path() const { return path_; }

 private:
  void FailType(std::string_view name, const char* expected);

  const report::Record& record_;
  std::string path_;
  std::optional<ApiError> error_;
};

// "a text", "a list", ...: the kind of a value, for error messages.
const char* KindName(const report::Value& value);

}  // namespace winnow::server
