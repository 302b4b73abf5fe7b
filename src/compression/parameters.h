#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "compression/numbers.h"

// Parameters of methods and parts: named fields of a config struct. One Visit(config, visitor)
// serves parsing, `winnow methods`, JSON and --help:
//
//   template <class Visitor>
//   void Visit(SnapKvConfig& c, Visitor& v) {
//     v("window", c.window, "observation window, tokens", Range{1, 1 << 20});
//   }
namespace winnow::compression {

// "name:key=value,key=value" with nested parts as values: "custom:score=window(32),select=topk".
struct Spec {
  std::string name;
  std::vector<std::pair<std::string, std::string>> values;  // in the order given
};
// "name" or "name:k=v,...". Commas and equal signs inside parentheses belong to the value.
// Errors: empty name, a key given twice, "k=" without value, unbalanced parentheses.
Result<Spec> ParseSpec(std::string_view text);
// A part: "name" or "name(v)" or "name(k=v,...)". A value without a key sets the part's first
// parameter; its key is empty in the result.
Result<Spec> ParsePart(std::string_view text);

struct Range {
  double min = 0;
  double max = 0;
};

// A number of entries, or a share of the budget: "508", "0.5".
class CountOrShare {
 public:
  constexpr CountOrShare(int64_t count) : count_(count) {}  // implicit: a number is a count
  // 0 <= share < 1.
  static constexpr CountOrShare Share(double share) {
    CountOrShare made(0);
    made.share_ = share;
    return made;
  }
  bool is_share() const { return share_ >= 0; }
  int64_t count() const { return count_; }  // 0 if it is a share
  double share() const { return share_; }
  // Entries under a budget, rounded down.
  int64_t Under(int64_t budget) const {
    return is_share() ? CountFrom(share_ * static_cast<double>(budget)) : count_;
  }
  bool operator==(const CountOrShare&) const = default;

 private:
  int64_t count_;
  double share_ = -1;
};

// What `winnow methods` shows of a parameter.
struct Parameter {
  std::string name;
  std::string
      type;  // "integer", "integers", "number", "count or share", "switch", "choice", "part"
  std::string default_value;  // as written in a spec
  std::string help;
  std::vector<std::string> choices;  // of a "choice"; of a "part", the parts to choose from
  Range range;                       // of numbers
};

// Text to value. Errors say what was found and what was expected.
Result<int64_t> ParseInteger(std::string_view text, Range range);
Result<double> ParseNumber(std::string_view text, Range range);
Result<CountOrShare> ParseCountOrShare(std::string_view text);  // a share has a point: 0.5
Result<bool> ParseSwitch(std::string_view text);                // true/false, on/off, 1/0
std::string ShortestText(double value);                         // shortest that reads back the same

// A choice among names: the n-th name stands for the enumerator with value n.
using Choices = std::vector<std::string_view>;

// Sets fields from a spec's values. `context` starts the messages ("snapkv").
class ParameterReader {
 public:
  ParameterReader(std::string context, const Spec& spec);

  void operator()(std::string_view name, int& field, std::string_view help, Range range);
  void operator()(std::string_view name, int64_t& field, std::string_view help, Range range);
  void operator()(std::string_view name, double& field, std::string_view help, Range range);
  void operator()(std::string_view name, CountOrShare& field, std::string_view help);
  void operator()(std::string_view name, bool& field, std::string_view help);
  // Lists of at most 64 integers, written "1/8" (rounds of hbw).
  void operator()(std::string_view name, std::vector<int>& field, std::string_view help,
                  Range range);
  // A part, "name" or "name(v)"; `names` are the parts to choose from. Stored as text: the caller
  // parses it.
  void operator()(std::string_view name, std::string& field, std::string_view help,
                  const Choices& names);
  template <class Enum>
  requires std::is_enum_v<Enum>
  void operator()(std::string_view name, Enum& field, std::string_view help,
                  const Choices& choices) {
    int index = static_cast<int>(field);
    Choice(name, index, choices);
    field = static_cast<Enum>(index);
    (void)help;
  }
  // Error: the first value that could not be read, or a key that no field has (lists the known
  // keys).
  Result<void> Finish();

 private:
  const std::string* Find(std::string_view name);
  void Choice(std::string_view name, int& index, const Choices& choices);
  void Fail(std::string_view name, const Error& error);

  std::string context_;
  const Spec& spec_;
  std::vector<bool> used_;
  std::vector<std::string> names_;
  std::string error_;
};

// Lists fields with their defaults.
class ParameterLister {
 public:
  void operator()(std::string_view name, const int& field, std::string_view help, Range);
  void operator()(std::string_view name, const int64_t& field, std::string_view help, Range);
  void operator()(std::string_view name, const double& field, std::string_view help, Range);
  void operator()(std::string_view name, const CountOrShare& field, std::string_view help);
  void operator()(std::string_view name, const bool& field, std::string_view help);
  void operator()(std::string_view name, const std::vector<int>& field, std::string_view help,
                  Range);
  void operator()(std::string_view name, const std::string& field, std::string_view help,
                  const Choices& names);
  template <class Enum>
  requires std::is_enum_v<Enum>
  void operator()(std::string_view name, const Enum& field, std::string_view help,
                  const Choices& choices) {
    Choice(name, static_cast<int>(field), help, choices);
  }
  const std::vector<Parameter>& parameters() const { return parameters_; }

 private:
  void Choice(std::string_view name, int index, std::string_view help, const Choices& choices);
  std::vector<Parameter> parameters_;
};

// A config read from a spec. Errors: as in ParameterReader::Finish.
template <class Config>
Result<Config> ReadConfig(const Spec& spec) {
  Config config;
  ParameterReader reader(spec.name, spec);
  Visit(config, reader);
  WINNOW_TRY(reader.Finish());
  return config;
}

template <class Config>
std::vector<Parameter> ListParameters() {
  Config config;
  ParameterLister lister;
  Visit(config, lister);
  return lister.parameters();
}

}  // namespace winnow::compression
