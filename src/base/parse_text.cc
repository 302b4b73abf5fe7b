#include "base/parse_text.h"

#include <charconv>
#include <optional>
#include <system_error>

#include "base/byte_size.h"

namespace winnow {
namespace {

constexpr size_t kMaxValues = 10000;  // in a list of ranges

Result<void> AppendRange(const std::string& word, std::vector<int64_t>& values) {
  const Error wrong{"'" + word + "' is not a number or a range such as 1-4, 0-1024+256, 1-16*2"};
  const size_t dash = word.find('-', 1);  // from 1 on: a leading minus is a sign
  if (dash == std::string::npos) {
    const auto value = ParseInteger(word);
    if (!value) return wrong;
    values.push_back(*value);
    return {};
  }
  const size_t mark = word.find_first_of("+*", dash + 1);
  const auto first = ParseInteger(word.substr(0, dash));
  const auto last =
      ParseInteger(word.substr(dash + 1, mark == std::string::npos ? mark : mark - dash - 1));
  const auto step =
      mark == std::string::npos ? Result<int64_t>(1) : ParseInteger(word.substr(mark + 1));
  if (!first || !last || !step || *last < *first) return wrong;
  const bool multiplies = mark != std::string::npos && word[mark] == '*';
  if (multiplies ? *step < 2 || *first < 1 : *step < 1) return wrong;
  for (int64_t value = *first; value <= *last;) {
    values.push_back(value);
    if (values.size() > kMaxValues) return wrong;
    if (multiplies ? value > *last / *step : value > *last - *step) break;
    value = multiplies ? value * *step : value + *step;
  }
  return {};
}

}  // namespace

Result<int64_t> ParseInteger(std::string_view text) {
  int64_t value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, problem] = std::from_chars(text.data(), end, value);
  if (problem != std::errc() || stop != end) {
    return Error{"expected a whole number, got '" + std::string(text) + "'"};
  }
  return value;
}

Result<int64_t> ParsePositive(std::string_view text) {
  WINNOW_ASSIGN(const int64_t value, ParseInteger(text));
  if (value < 1) return Error{"found " + std::to_string(value) + ", expected 1 or more"};
  return value;
}

Result<int64_t> ParseCount(std::string_view text) {
  WINNOW_ASSIGN(const int64_t value, ParseInteger(text));
  if (value < 0) return Error{"found " + std::to_string(value) + ", expected 0 or more"};
  return value;
}

Result<std::vector<std::string>> ParseWords(std::string_view text) {
  std::vector<std::string> words;
  for (;;) {
    const size_t comma = text.find(',');
    words.emplace_back(text.substr(0, comma));
    if (words.back().empty()) return Error{"an empty place in the list"};
    if (comma == std::string_view::npos) return words;
    text.remove_prefix(comma + 1);
  }
}

Result<std::vector<int64_t>> ParseRanges(std::string_view text) {
  WINNOW_ASSIGN(const std::vector<std::string> words, ParseWords(text));
  std::vector<int64_t> values;
  for (const std::string& word : words) WINNOW_TRY(AppendRange(word, values));
  return values;
}

Result<int64_t> ParseBytes(std::string_view text) {
  if (const auto bytes = ParseByteSize(text)) return *bytes;
  return Error{"found '" + std::string(text) +
               "', expected bytes such as 268435456, 512k, 256M or 1.5G"};
}

}  // namespace winnow
