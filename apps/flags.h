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

// One flag of a command: what it is called, what it takes, what it does.
struct Flag {
  std::vector<std::string> names;  // short forms first: "-m", "--model"
  std::string value_name;          // "FILE"; empty: takes none
  std::string help;
  std::string default_text;  // empty: none shown
  // Values that are taken if the next argument is one of them; otherwise the flag stands alone (-fa
  // [on|off|auto]).
  std::vector<std::string> optional_values;
  bool hidden = false;  // accepted, but not worth a line of --help
  std::function<Result<void>(std::string_view value)> set;
};

// The flags of a command: one table serves parsing, --help and the suggestions in error messages.
class FlagTable {
 public:
  using Names = std::vector<std::string>;

  // `usage` is what follows "winnow COMMAND" in the first line of the help.
  FlagTable(std::string command, std::string usage, std::string summary);

  void Group(std::string title);  // of the flags that follow; one that is there already goes on
  void Note(std::string text);    // a paragraph at the end of the help
  void Add(Flag flag);

  // Flags that set a variable; its value now is the default shown.
  void Add(Names names, std::string value_name, std::string help, std::string* target);
  void Add(Names names, std::string value_name, std::string help,
           std::optional<std::string>* target);
  void Add(Names names, std::string value_name, std::string help, int* target);
  void Add(Names names, std::string value_name, std::string help, int64_t* target);
  void Add(Names names, std::string value_name, std::string help, uint64_t* target);
  void Add(Names names, std::string value_name, std::string help, double* target);
  // Can be given several times.
  void Add(Names names, std::string value_name, std::string help, std::vector<std::string>* target);
  void Switch(Names names, std::string help, bool* target, bool value = true);
  bool Has(std::string_view name) const { return Find(name) != nullptr; }

  // Sets what the arguments say; both `--flag value` and `--flag=value` are understood. Returns
  // what is not a flag
  // ("-" included; after "--" everything). -h and --help set help_wanted() and end the parsing.
  // Errors: unknown flag (with the nearest known one), missing or unreadable value.
  Result<std::vector<std::string>> Parse(std::span<const std::string> arguments);

  // Whether Parse met the flag, by any of its names.
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
  size_t group_ = 0;  // of the flags that are added
  std::vector<std::string> notes_;
  std::vector<Entry> entries_;
  std::set<const Entry*> given_;  // by what was parsed, when all flags are there
  bool help_wanted_ = false;
};

// Decimals, nothing before or after them; whole numbers and lists are read by base/parse_text.h.
Result<double> ParseDecimal(std::string_view text);
Result<double> ParseShare(std::string_view text);  // more than 0, at most 1
Result<double> ParseNats(std::string_view text);   // more than 0

}  // namespace winnow::apps
