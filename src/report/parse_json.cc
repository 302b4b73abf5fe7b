#include "report/parse_json.h"

#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

namespace winnow::report {
namespace {

// Builds a Value straight from the parser's events, without an nlohmann::json tree in between.
class Builder {
 public:
  explicit Builder(int64_t max_values) : max_values_(max_values) {}

  bool null() { return Put(Value()); }
  bool boolean(bool value) { return Put(value); }
  bool number_integer(int64_t value) { return Put(value); }
  bool number_unsigned(uint64_t value) {
    return std::in_range<int64_t>(value) ? Put(static_cast<int64_t>(value))
                                         : Put(static_cast<double>(value));
  }
  bool number_float(double value, const std::string&) { return Put(value); }
  bool string(std::string& value) { return Put(std::move(value)); }
  bool binary(nlohmann::json::binary_t&) { return false; }
  bool key(std::string& name) {
    open_.back().name = std::move(name);
    return true;
  }
  bool start_object(std::size_t) { return Open(Record()); }
  bool end_object() { return Close(); }
  bool start_array(std::size_t) { return Open(List()); }
  bool end_array() { return Close(); }
  bool parse_error(std::size_t at, const std::string&, const nlohmann::json::exception&) {
    error_ = "not JSON at byte " + std::to_string(at);
    return false;
  }

  const std::string& error() const { return error_; }
  Value TakeValue() { return std::move(value_); }

 private:
  struct Level {
    Value value;
    std::string name;  // of the field that comes next
  };

  bool Put(Value value) {
    if (++n_values_ > max_values_) {
      error_ = "more than " + std::to_string(max_values_) + " values";
      return false;
    }
    if (open_.empty()) {
      value_ = std::move(value);
      return true;
    }
    Level& level = open_.back();
    if (auto* list = std::get_if<List>(&level.value.data)) {
      list->push_back(std::move(value));
    } else {
      std::get<Record>(level.value.data).Add(std::move(level.name), std::move(value));
    }
    return true;
  }
  bool Open(Value value) {
    if (open_.size() == kMaxJsonLevels) {
      error_ = "nested deeper than " + std::to_string(kMaxJsonLevels) + " levels";
      return false;
    }
    open_.push_back({std::move(value), {}});
    return true;
  }
  bool Close() {
    Value value = std::move(open_.back().value);
    open_.pop_back();
    return Put(std::move(value));
  }

  int64_t max_values_;
  int64_t n_values_ = 0;
  std::vector<Level> open_;
  Value value_;
  std::string error_;
};

}  // namespace

Result<Value> ParseJson(std::string_view text, int64_t max_values) {
  Builder builder(max_values);
  if (!nlohmann::json::sax_parse(text, &builder)) return Error{builder.error()};
  return builder.TakeValue();
}

}  // namespace winnow::report
