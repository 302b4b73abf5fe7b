#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/parse_text.h"
#include "base/result.h"

namespace winnow::apps {

// One flag of a command: its names, its value and its effect.
struct Flag {
  std::vector<std::string> names;  // short forms first: "-m", "--model"
  std::string value_name;          // "FILE"; empty: no value
  std::string help;
  std::string default_text;  // empty: none shown
  // Optional values: taken if the next argument is one of them, otherwise the flag stands alone
  // (-fa [on|off|auto]).
  std::vector<std::string> optional_values;
  bool hidden = false;  // accepted, but not shown by --help
  std::function<Result<void>(std::string_view value)> set;
};

// The flags of a command: one table serves parsing, --help and the suggestions in error messages.
class FlagTable {
 public:
  using Names = std::vector<std::string>;

  // `usage` follows "winnow COMMAND" in the first line of the help.
  FlagTable(std::string command, std::string usage, std::string summary);

  void Group(std::string title);  // title of the flags that follow; an existing group is continued
  void Note(std::string text);    // a paragraph at the end of the help
  void Add(Flag flag);

  // Flags that set a variable; its current value is shown as the default.
  void Add(Names names, std::string value_name, std::string help, std::string* target);
  void Add(Names names, std::string value_name, std::string help,
           std::optional<std::string>* target);
  void Add(Names names, std::string value_name, std::string help, int* target);
  void Add(Names names, std::string value_name, std::string help, int64_t* target);
  void Add(Names names, std::string value_name, std::string help, uint64_t* target);
  void Add(Names names, std::string value_name, std::string help, double* target);
  // May be repeated.
  void Add(Names names, std::string value_name, std::string help, std::vector<std::string>* target);
  void Switch(Names names, std::string help, bool* target, bool value = true);
  bool Has(std::string_view name) const { return Find(name) != nullptr; }

  // Sets the flags given by the arguments, as `--flag value` or `--flag=value`. Returns the other
  // arguments ("-" included; everything after "--"). -h and --help set help_wanted() and end
  // parsing. Errors: unknown flag (with the nearest known one), missing or invalid value.
  Result<std::vector<std::string>> Parse(std::span<const std::string> arguments);

  // Whether Parse met the flag, under any of its names.
  bool Given(std::string_view name) const;
  bool help_wanted() const { return help_wanted_; }
  std::string Help() const;
  const std::string& command() const { return command_; }

 private:
  struct Entry {
    size_t group;
    Flag flag;
  };
  template <class Integer>
  void AddInteger(Names names, std::string value_name, std::string help, Integer* target);
  const Entry* Find(std::string_view name) const;
  std::string Nearest(std::string_view name) const;

  std::string command_, usage_, summary_;
  std::vector<std::string> groups_;
  size_t group_ = 0;  // group of flags added next
  std::vector<std::string> notes_;
  std::vector<Entry> entries_;
  std::set<const Entry*> given_;  // flags met by Parse
  bool help_wanted_ = false;
};

// Parses a decimal number with nothing before or after it. base/parse_text.h reads integers and
// lists.
Result<double> ParseDecimal(std::string_view text);
Result<double> ParseShare(std::string_view text);  // more than 0, at most 1
Result<double> ParseNats(std::string_view text);   // more than 0

}  // namespace winnow::apps
