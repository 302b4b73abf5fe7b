#include "eval/tasks/options.h"

#include <algorithm>

namespace winnow::eval {

const std::string* FindValue(const OptionValues& given, std::string_view name) {
  const auto found = std::find_if(given.rbegin(), given.rend(),
                                  [&](const auto& value) { return value.first == name; });
  return found == given.rend() ? nullptr : &found->second;
}

Result<void> OptionReader::Finish() const {
  if (error_) return *error_;
  for (const auto& [name, text] : given_) {
    if (std::find(names_.begin(), names_.end(), name) != names_.end()) continue;
    std::string known;
    for (const std::string& each : names_) known += (known.empty() ? "" : ", ") + each;
    return Error{"no option '" + name + "'; known options: " + known};
  }
  return {};
}

const std::string* OptionReader::Find(std::string_view name) {
  names_.emplace_back(name);
  return FindValue(given_, name);
}

void OptionReader::Fail(std::string_view name, const Error& error) {
  if (!error_) error_ = Prefixed(std::string(name) + ": ", error);
}

Result<std::string> ParseText(std::string_view text) { return std::string(text); }

Result<std::vector<int64_t>> ParseNumbers(std::string_view text) {
  WINNOW_ASSIGN(const std::vector<int64_t> values, ParseRanges(text));
  if (*std::min_element(values.begin(), values.end()) < 0) {
    return Error{"'" + std::string(text) + "': expected 0 or more"};
  }
  return values;
}

}  // namespace winnow::eval
