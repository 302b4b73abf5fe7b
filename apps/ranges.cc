#include "ranges.h"

#include "flags.h"

namespace winnow::apps {
namespace {

constexpr size_t kMaxValues = 10000;

Result<void> AppendRange(const std::string& word, std::vector<int64_t>& values) {
  const Error wrong{"'" + word + "' is not a number or a range such as 1-4, 0-1024+256, 1-16*2"};
  const size_t dash = word.find('-', 1);  // a leading one is a sign
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

}  // namespace winnow::apps
