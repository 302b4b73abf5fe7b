#include "compression/parameters.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>
#include <system_error>
#include <utility>

#include "base/check.h"

namespace winnow::compression {
namespace {

std::string Quoted(std::string_view text) { return "'" + std::string(text) + "'"; }

// The indices of `wanted` in `text` outside of parentheses. Error: unbalanced parentheses.
Result<std::vector<size_t>> FindOutside(std::string_view text, char wanted) {
  std::vector<size_t> found;
  int depth = 0;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '(') ++depth;
    if (text[i] == ')' && --depth < 0) break;
    if (depth == 0 && text[i] == wanted) found.push_back(i);
  }
  if (depth != 0) return Error{"unbalanced parentheses in " + Quoted(text)};
  return found;
}

// "key=value,key=value". A word without "=" is a value without a key, if `unnamed` allows one.
Result<void> ParseValues(std::string_view text, bool unnamed, Spec& spec) {
  WINNOW_ASSIGN(std::vector<size_t> ends, FindOutside(text, ','));
  ends.push_back(text.size());
  size_t begin = 0;
  for (const size_t end : ends) {
    const std::string_view word = text.substr(begin, end - begin);
    begin = end + 1;
    const size_t equals = word.find('=');
    // In "window(32)" or "blocks(w=2)" the equal sign, if any, belongs to the nested part.
    const bool named = equals != std::string_view::npos && equals < word.find('(');
    const std::string key(named ? word.substr(0, equals) : "");
    const std::string value(named ? word.substr(equals + 1) : word);
    if (!named && !unnamed) {
      return Error{spec.name + ": found " + Quoted(word) + ", expected PARAMETER=VALUE"};
    }
    if (named && key.empty()) {
      return Error{spec.name + ": a parameter without a name: " + Quoted(word)};
    }
    if (value.empty()) {
      return Error{spec.name + ": " + (key.empty() ? "an empty parameter" : key + " has no value")};
    }
    for (const auto& [other, unused] : spec.values) {
      if (other == key) {
        return Error{spec.name + ": " +
                     (key.empty() ? "two values without a name" : key + " is given twice")};
      }
    }
    spec.values.emplace_back(key, value);
  }
  return {};
}

template <class Number>
std::optional<Number> NumberIn(std::string_view text) {
  Number value{};
  const char* end = text.data() + text.size();
  const auto [stop, problem] = std::from_chars(text.data(), end, value);
  if (problem != std::errc() || stop != end) return std::nullopt;
  return value;
}

Error OutOfRange(std::string_view text, std::string_view what, Range range) {
  return Error{"found " + Quoted(text) + ", expected " + std::string(what) + " from " +
               ShortestText(range.min) + " to " + ShortestText(range.max)};
}

Range Within(Range range, double min, double max) {
  return {std::max(range.min, min), std::min(range.max, max)};
}

template <class Number>
constexpr Range kRangeOf = {static_cast<double>(std::numeric_limits<Number>::lowest()),
                            static_cast<double>(std::numeric_limits<Number>::max())};

constexpr size_t kMaxNumbers = 64;  // in a list

std::string Joined(const std::vector<int>& numbers) {
  std::string text;
  for (const int number : numbers) text += (text.empty() ? "" : "/") + std::to_string(number);
  return text;
}

}  // namespace

Result<Spec> ParseSpec(std::string_view text) {
  const size_t colon = text.find(':');
  Spec spec = {.name = std::string(text.substr(0, colon)), .values = {}};
  if (spec.name.empty()) return Error{"no method name in " + Quoted(text)};
  if (spec.name.find_first_of("(),=") != std::string::npos) {
    return Error{"found " + Quoted(text) + ", expected METHOD or METHOD:PARAMETER=VALUE,..."};
  }
  if (colon == std::string_view::npos) return spec;
  WINNOW_TRY(ParseValues(text.substr(colon + 1), /*unnamed=*/false, spec));
  return spec;
}

Result<Spec> ParsePart(std::string_view text) {
  const size_t open = text.find('(');
  Spec spec = {.name = std::string(text.substr(0, open)), .values = {}};
  if (spec.name.empty()) return Error{"no part name in " + Quoted(text)};
  if (spec.name.find_first_of("),=:") != std::string::npos) {
    return Error{"found " + Quoted(text) + ", expected PART or PART(PARAMETER=VALUE,...)"};
  }
  if (open == std::string_view::npos) return spec;
  WINNOW_TRY(FindOutside(text, ','));
  if (text.back() != ')') {
    return Error{"found " + Quoted(text) + ", expected nothing after the closing parenthesis"};
  }
  WINNOW_TRY(ParseValues(text.substr(open + 1, text.size() - open - 2), /*unnamed=*/true, spec));
  return spec;
}

Result<int64_t> ParseInteger(std::string_view text, Range range) {
  const std::optional<int64_t> value = NumberIn<int64_t>(text);
  if (!value || static_cast<double>(*value) < range.min ||
      static_cast<double>(*value) > range.max) {
    return OutOfRange(text, "an integer", range);
  }
  return *value;
}

Result<double> ParseNumber(std::string_view text, Range range) {
  const std::optional<double> value = NumberIn<double>(text);
  // Written so that NaN fails.
  if (!value || !(*value >= range.min && *value <= range.max)) {
    return OutOfRange(text, "a number", range);
  }
  return *value;
}

Result<CountOrShare> ParseCountOrShare(std::string_view text) {
  constexpr int64_t kMax = 1 << 30;
  if (text.find('.') != text.npos) {
    const std::optional<double> share = NumberIn<double>(text);
    if (share && *share >= 0 && *share < 1) return CountOrShare::Share(*share);
  } else if (const std::optional<int64_t> count = NumberIn<int64_t>(text)) {
    if (*count >= 0 && *count <= kMax) return CountOrShare(*count);
  }
  return Error{"found " + Quoted(text) + ", expected a number of entries from 0 to " +
               std::to_string(kMax) + ", or a share of the budget from 0.0 to below 1.0"};
}

Result<bool> ParseSwitch(std::string_view text) {
  for (const std::string_view yes : {"true", "on", "1"}) {
    if (text == yes) return true;
  }
  for (const std::string_view no : {"false", "off", "0"}) {
    if (text == no) return false;
  }
  return Error{"found " + Quoted(text) + ", expected true or false"};
}

std::string ShortestText(double value) {
  // Whole numbers without an exponent: 1048576 rather than 1.048576e+06.
  char text[64];
  const bool whole = std::abs(value) <= 1e15 && value == static_cast<double>(std::llround(value));
  const std::to_chars_result end =
      whole ? std::to_chars(text, text + sizeof(text), static_cast<int64_t>(value))
            : std::to_chars(text, text + sizeof(text), value);
  WINNOW_CHECK(end.ec == std::errc());
  return std::string(text, end.ptr);
}

ParameterReader::ParameterReader(std::string context, const Spec& spec)
    : context_(std::move(context)), spec_(spec), used_(spec.values.size(), false) {}

void ParameterReader::operator()(std::string_view name, int& field, std::string_view help,
                                 Range range) {
  int64_t value = field;
  const Range fits = kRangeOf<int>;
  (*this)(name, value, help, Within(range, fits.min, fits.max));
  field = static_cast<int>(value);
}

void ParameterReader::operator()(std::string_view name, int64_t& field, std::string_view,
                                 Range range) {
  const std::string* text = Find(name);
  if (text == nullptr) return;
  const Result<int64_t> value = ParseInteger(*text, range);
  if (!value) return Fail(name, value.error());
  field = *value;
}

void ParameterReader::operator()(std::string_view name, double& field, std::string_view,
                                 Range range) {
  const std::string* text = Find(name);
  if (text == nullptr) return;
  const Result<double> value = ParseNumber(*text, range);
  if (!value) return Fail(name, value.error());
  field = *value;
}

void ParameterReader::operator()(std::string_view name, CountOrShare& field, std::string_view) {
  const std::string* text = Find(name);
  if (text == nullptr) return;
  const Result<CountOrShare> value = ParseCountOrShare(*text);
  if (!value) return Fail(name, value.error());
  field = *value;
}

void ParameterReader::operator()(std::string_view name, bool& field, std::string_view) {
  const std::string* text = Find(name);
  if (text == nullptr) return;
  const Result<bool> value = ParseSwitch(*text);
  if (!value) return Fail(name, value.error());
  field = *value;
}

void ParameterReader::operator()(std::string_view name, std::vector<int>& field, std::string_view,
                                 Range range) {
  const std::string* text = Find(name);
  if (text == nullptr) return;
  const Range fits = kRangeOf<int>;
  std::vector<int> numbers;
  for (size_t begin = 0; begin <= text->size();) {
    const size_t end = std::min(text->find('/', begin), text->size());
    const std::string_view word = std::string_view(*text).substr(begin, end - begin);
    const Result<int64_t> value = ParseInteger(word, Within(range, fits.min, fits.max));
    if (!value) return Fail(name, value.error());
    if (numbers.size() == kMaxNumbers) {
      return Fail(name, Error{"found more than " + std::to_string(kMaxNumbers) + " numbers"});
    }
    numbers.push_back(static_cast<int>(*value));
    begin = end + 1;
  }
  field = std::move(numbers);
}

void ParameterReader::operator()(std::string_view name, std::string& field, std::string_view,
                                 const Choices&) {
  if (const std::string* text = Find(name)) field = *text;
}

Result<void> ParameterReader::Finish() {
  if (!error_.empty()) return Error{error_};
  for (size_t i = 0; i < used_.size(); ++i) {
    if (used_[i]) continue;
    const std::string& key = spec_.values[i].first;
    std::string known;
    for (const std::string& name : names_) known += (known.empty() ? "" : ", ") + name;
    const std::string found = key.empty() ? Quoted(spec_.values[i].second) : Quoted(key);
    return Error{context_ + ": no parameter " + found + "; " +
                 (known.empty() ? "it has no parameters" : "its parameters: " + known)};
  }
  return {};
}

const std::string* ParameterReader::Find(std::string_view name) {
  const bool first = names_.empty();
  names_.emplace_back(name);
  const std::string* found = nullptr;
  for (size_t i = 0; i < spec_.values.size(); ++i) {
    const auto& [key, value] = spec_.values[i];
    if (key != name && !(first && key.empty())) continue;
    if (found != nullptr) Fail(name, Error{"given twice, once without its name"});
    used_[i] = true;
    found = &value;
  }
  return found;
}

void ParameterReader::Choice(std::string_view name, int& index, const Choices& choices) {
  const std::string* text = Find(name);
  if (text == nullptr) return;
  const auto choice = std::find(choices.begin(), choices.end(), *text);
  if (choice != choices.end()) {
    index = static_cast<int>(choice - choices.begin());
    return;
  }
  std::string known;
  for (const std::string_view word : choices) {
    known += (known.empty() ? "" : ", ") + std::string(word);
  }
  Fail(name, Error{"found " + Quoted(*text) + ", expected one of " + known});
}

void ParameterReader::Fail(std::string_view name, const Error& error) {
  if (error_.empty()) error_ = context_ + ": " + std::string(name) + ": " + error.message;
}

void ParameterLister::operator()(std::string_view name, const int& field, std::string_view help,
                                 Range range) {
  (*this)(name, int64_t{field}, help, range);
}

void ParameterLister::operator()(std::string_view name, const int64_t& field, std::string_view help,
                                 Range range) {
  parameters_.push_back({.name = std::string(name),
                         .type = "integer",
                         .default_value = std::to_string(field),
                         .help = std::string(help),
                         .choices = {},
                         .range = range});
}

void ParameterLister::operator()(std::string_view name, const double& field, std::string_view help,
                                 Range range) {
  parameters_.push_back({.name = std::string(name),
                         .type = "number",
                         .default_value = ShortestText(field),
                         .help = std::string(help),
                         .choices = {},
                         .range = range});
}

void ParameterLister::operator()(std::string_view name, const CountOrShare& field,
                                 std::string_view help) {
  parameters_.push_back({.name = std::string(name),
                         .type = "count or share",
                         .default_value = field.is_share() ? ShortestText(field.share())
                                                           : std::to_string(field.count()),
                         .help = std::string(help),
                         .choices = {},
                         .range = {}});
}

void ParameterLister::operator()(std::string_view name, const bool& field, std::string_view help) {
  parameters_.push_back({.name = std::string(name),
                         .type = "switch",
                         .default_value = field ? "true" : "false",
                         .help = std::string(help),
                         .choices = {},
                         .range = {}});
}

void ParameterLister::operator()(std::string_view name, const std::vector<int>& field,
                                 std::string_view help, Range range) {
  parameters_.push_back({.name = std::string(name),
                         .type = "integers",
                         .default_value = Joined(field),
                         .help = std::string(help),
                         .choices = {},
                         .range = range});
}

void ParameterLister::operator()(std::string_view name, const std::string& field,
                                 std::string_view help, const Choices& names) {
  parameters_.push_back({.name = std::string(name),
                         .type = "part",
                         .default_value = field,
                         .help = std::string(help),
                         .choices = {names.begin(), names.end()},
                         .range = {}});
}

void ParameterLister::Choice(std::string_view name, int index, std::string_view help,
                             const Choices& choices) {
  WINNOW_CHECK(index >= 0 && static_cast<size_t>(index) < choices.size());
  parameters_.push_back({.name = std::string(name),
                         .type = "choice",
                         .default_value = std::string(choices[static_cast<size_t>(index)]),
                         .help = std::string(help),
                         .choices = {choices.begin(), choices.end()},
                         .range = {}});
}

}  // namespace winnow::compression
