#include "flags.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <sstream>
#include <utility>

#include "base/check.h"
#include "base/nearest.h"

namespace winnow::apps {
namespace {

constexpr size_t kHelpColumn = 34;
constexpr size_t kLineWidth = 100;

template <typename T>
std::string Shown(T value) {
  std::ostringstream out;
  out << value;
  return out.str();
}

// Appends `text` in lines that start at `column`; the current line already has `used` columns.
void AppendWrapped(std::string& out, size_t used, size_t column, const std::string& text) {
  std::istringstream words(text);
  std::string word;
  size_t at = used;
  bool first = true;
  while (words >> word) {
    if (!first && at + 1 + word.size() > kLineWidth) {
      out += "\n" + std::string(column, ' ');
      at = column;
      first = true;
    }
    if (!first) {
      out += ' ';
      ++at;
    }
    out += word;
    at += word.size();
    first = false;
  }
  out += '\n';
}

template <typename Integer>
Result<void> SetInteger(std::string_view text, Integer* target) {
  WINNOW_ASSIGN(const int64_t value, ParseInteger(text));
  if (!std::in_range<Integer>(value)) return Error{"'" + std::string(text) + "' is out of range"};
  *target = static_cast<Integer>(value);
  return {};
}

}  // namespace

Result<double> ParseDecimal(std::string_view text) {
  double value = 0;
  const char* end = text.data() + text.size();
  const auto [stop, problem] = std::from_chars(text.data(), end, value);
  if (problem != std::errc() || stop != end || std::isnan(value)) {
    return Error{"expected a number, got '" + std::string(text) + "'"};
  }
  return value;
}

Result<double> ParseShare(std::string_view text) {
  WINNOW_ASSIGN(const double value, ParseDecimal(text));
  if (!(value > 0 && value <= 1)) {
    return Error{"found '" + std::string(text) + "', expected more than 0 and at most 1"};
  }
  return value;
}

Result<double> ParseNats(std::string_view text) {
  WINNOW_ASSIGN(const double value, ParseDecimal(text));
  if (!(value > 0 && std::isfinite(value))) {
    return Error{"found '" + std::string(text) + "', expected more than 0"};
  }
  return value;
}

FlagTable::FlagTable(std::string command, std::string usage, std::string summary)
    : command_(std::move(command)), usage_(std::move(usage)), summary_(std::move(summary)) {
  Group("Flags");
}

void FlagTable::Group(std::string title) {
  const auto found = std::find(groups_.begin(), groups_.end(), title);
  group_ = static_cast<size_t>(found - groups_.begin());
  if (found == groups_.end()) groups_.push_back(std::move(title));
}
void FlagTable::Note(std::string text) { notes_.push_back(std::move(text)); }
void FlagTable::Add(Flag flag) { entries_.push_back({group_, std::move(flag)}); }

void FlagTable::Add(Names names, std::string value_name, std::string help, std::string* target) {
  Flag flag{std::move(names), std::move(value_name), std::move(help), *target, {}, false, {}};
  flag.set = [target](std::string_view value) {
    *target = value;
    return Result<void>();
  };
  Add(std::move(flag));
}

void FlagTable::Add(Names names, std::string value_name, std::string help,
                    std::optional<std::string>* target) {
  Flag flag{std::move(names), std::move(value_name), std::move(help), "", {}, false, {}};
  flag.set = [target](std::string_view value) {
    *target = std::string(value);
    return Result<void>();
  };
  Add(std::move(flag));
}

template <class Integer>
void FlagTable::AddInteger(Names names, std::string value_name, std::string help, Integer* target) {
  Add({std::move(names),
       std::move(value_name),
       std::move(help),
       Shown(*target),
       {},
       false,
       [target](std::string_view value) { return SetInteger(value, target); }});
}

void FlagTable::Add(Names names, std::string value_name, std::string help, int* target) {
  AddInteger(std::move(names), std::move(value_name), std::move(help), target);
}
void FlagTable::Add(Names names, std::string value_name, std::string help, int64_t* target) {
  AddInteger(std::move(names), std::move(value_name), std::move(help), target);
}
void FlagTable::Add(Names names, std::string value_name, std::string help, uint64_t* target) {
  AddInteger(std::move(names), std::move(value_name), std::move(help), target);
}

void FlagTable::Add(Names names, std::string value_name, std::string help, double* target) {
  Flag flag{
      std::move(names), std::move(value_name), std::move(help), Shown(*target), {}, false, {}};
  flag.set = [target](std::string_view value) -> Result<void> {
    WINNOW_ASSIGN(*target, ParseDecimal(value));
    return {};
  };
  Add(std::move(flag));
}

void FlagTable::Add(Names names, std::string value_name, std::string help,
                    std::vector<std::string>* target) {
  Flag flag{std::move(names), std::move(value_name), std::move(help), "", {}, false, {}};
  flag.set = [target](std::string_view value) {
    target->emplace_back(value);
    return Result<void>();
  };
  Add(std::move(flag));
}

void FlagTable::Switch(Names names, std::string help, bool* target, bool value) {
  Flag flag{std::move(names), "", std::move(help), *target == value ? "on" : "", {}, false, {}};
  flag.set = [target, value](std::string_view) {
    *target = value;
    return Result<void>();
  };
  Add(std::move(flag));
}

const FlagTable::Entry* FlagTable::Find(std::string_view name) const {
  for (const Entry& entry : entries_) {
    const Flag& flag = entry.flag;
    if (std::find(flag.names.begin(), flag.names.end(), name) != flag.names.end()) return &entry;
  }
  return nullptr;
}

namespace {

std::string Alternatives(const std::vector<std::string>& values) {
  std::string text;
  for (const std::string& value : values) text += (text.empty() ? "" : ", ") + value;
  return text;
}

}  // namespace

bool FlagTable::Given(std::string_view name) const {
  const Entry* entry = Find(name);
  WINNOW_CHECK(entry != nullptr);
  return given_.contains(entry);
}

std::string FlagTable::Nearest(std::string_view name) const {
  std::vector<std::string_view> names;
  for (const Entry& entry : entries_) {
    if (entry.flag.hidden) continue;
    names.insert(names.end(), entry.flag.names.begin(), entry.flag.names.end());
  }
  return std::string(NearestWord(name, names));
}

Result<std::vector<std::string>> FlagTable::Parse(std::span<const std::string> arguments) {
  std::vector<std::string> rest;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const std::string& argument = arguments[i];
    if (argument == "--") {
      rest.insert(rest.end(), arguments.begin() + static_cast<std::ptrdiff_t>(i) + 1,
                  arguments.end());
      break;
    }
    if (argument.size() < 2 || argument[0] != '-') {
      rest.push_back(argument);
      continue;
    }
    if (argument == "-h" || argument == "--help") {
      help_wanted_ = true;
      break;
    }
    const size_t equals = argument.starts_with("--") ? argument.find('=') : std::string::npos;
    const std::string name = argument.substr(0, equals);
    const Entry* entry = Find(name);
    if (entry == nullptr) {
      const std::string nearest = Nearest(name);
      return Error{"unknown flag " + name +
                   (nearest.empty() ? "" : "; did you mean " + nearest + "?")};
    }
    const Flag* flag = &entry->flag;
    given_.insert(entry);
    std::string value;
    const bool has_next = i + 1 < arguments.size();
    if (equals != std::string::npos) {
      value = argument.substr(equals + 1);
      const auto& values = flag->optional_values;
      if (!values.empty() && std::find(values.begin(), values.end(), value) == values.end()) {
        return Error{"flag " + name + ": found '" + value + "', expected " + Alternatives(values)};
      }
      if (values.empty() && flag->value_name.empty()) {
        return Error{"flag " + name + " takes no value"};
      }
    } else if (!flag->optional_values.empty()) {
      const auto& values = flag->optional_values;
      if (has_next && std::find(values.begin(), values.end(), arguments[i + 1]) != values.end()) {
        value = arguments[++i];
      }
    } else if (!flag->value_name.empty()) {
      if (!has_next) return Error{"flag " + name + " needs a value: " + flag->value_name};
      value = arguments[++i];
    }
    if (const auto set = flag->set(value); !set)
      return Error{"flag " + name + ": " + set.error().message};
  }
  return rest;
}

std::string FlagTable::Help() const {
  std::string out = "winnow " + command_ + " " + usage_ + "\n\n";
  AppendWrapped(out, 0, 0, summary_);
  for (size_t group = 0; group < groups_.size(); ++group) {
    bool titled = false;
    for (const Entry& entry : entries_) {
      if (entry.group != group || entry.flag.hidden) continue;
      if (!titled) out += "\n" + groups_[group] + ":\n";
      titled = true;
      const Flag& flag = entry.flag;
      std::string line = "  ";
      for (const std::string& name : flag.names) {
        line += (line.size() > 2 ? ", " : "") + name;
      }
      if (!flag.value_name.empty()) line += " " + flag.value_name;
      if (line.size() + 2 > kHelpColumn) {
        out += line + "\n" + std::string(kHelpColumn, ' ');
      } else {
        out += line + std::string(kHelpColumn - line.size(), ' ');
      }
      AppendWrapped(out, kHelpColumn, kHelpColumn,
                    flag.help + (flag.default_text.empty() ? "" : " [" + flag.default_text + "]"));
    }
  }
  for (const std::string& note : notes_) {
    out += '\n';
    AppendWrapped(out, 0, 0, note);
  }
  return out;
}

}  // namespace winnow::apps
