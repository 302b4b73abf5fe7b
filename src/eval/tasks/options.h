#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/parse_text.h"
#include "base/result.h"

// Options of tasks: named fields of a struct in the task's own file, with their defaults. One
// Visit(options, visitor) serves parsing, a command's flags, --help and --list:
//
//   template <class Visitor>
//   void Visit(Gsm8kOptions& o, Visitor& v) {
//     VisitData(o, v);
//     v("shots", o.shots, "N", "solved examples before a question", ParseCount);
//   }
namespace winnow::eval {

// The options given, as name and text: {"lengths", "512-2048+512"}. If a name occurs again, the
// last counts; the text of a switch is empty.
using OptionValues = std::vector<std::pair<std::string, std::string>>;

// The text given for a name; null: none was given.
const std::string* FindValue(const OptionValues& given, std::string_view name);

// What a command does with an option whose value is a path.
enum class FileUse {
  kNone,
  kReads,         // a file or a folder
  kWritesFolder,  // a folder that takes .jsonl files
};

// The description of an option, without its task's struct.
struct Option {
  std::string name;        // "hide_question"
  std::string value_name;  // "N"; empty: a switch
  std::string help;
  FileUse file_use = FileUse::kNone;
  // Error: the text is not a valid value; says what is.
  std::function<Result<void>(std::string_view text)> check;
};

// Sets fields to the values given.
class OptionReader {
 public:
  explicit OptionReader(const OptionValues& given) : given_(given) {}

  // An option with a value, which `parse` reads.
  template <class Field, class Value>
  void operator()(std::string_view name, Field& field, std::string_view, std::string_view,
                  Result<Value> (*parse)(std::string_view text), FileUse = FileUse::kNone) {
    const std::string* text = Find(name);
    if (text == nullptr) return;
    Result<Value> value = parse(*text);
    if (!value) return Fail(name, value.error());
    field = std::move(value).value();
  }
  // A switch.
  void operator()(std::string_view name, bool& field, std::string_view) {
    if (Find(name) != nullptr) field = true;
  }
  // Error: the first value that could not be parsed, or a name that no field has.
  Result<void> Finish() const;

 private:
  const std::string* Find(std::string_view name);
  void Fail(std::string_view name, const Error& error);

  const OptionValues& given_;
  std::vector<std::string> names_;
  std::optional<Error> error_;
};

// Lists the options of a struct.
class OptionLister {
 public:
  template <class Field, class Value>
  void operator()(std::string_view name, Field&, std::string_view value_name, std::string_view help,
                  Result<Value> (*parse)(std::string_view text),
                  FileUse file_use = FileUse::kNone) {
    options_.push_back({std::string(name), std::string(value_name), std::string(help), file_use,
                        [parse](std::string_view text) -> Result<void> {
                          WINNOW_TRY(parse(text));
                          return {};
                        }});
  }
  void operator()(std::string_view name, bool&, std::string_view help) {
    options_.push_back({std::string(name), "", std::string(help), FileUse::kNone,
                        [](std::string_view) { return Result<void>(); }});
  }
  std::vector<Option> Finish() { return std::move(options_); }

 private:
  std::vector<Option> options_;
};

// Errors: those of OptionReader::Finish.
template <class Options>
Result<Options> ReadOptions(const OptionValues& given) {
  Options options;
  OptionReader reader(given);
  Visit(options, reader);
  WINNOW_TRY(reader.Finish());
  return options;
}

template <class Options>
std::vector<Option> ListOptions() {
  Options options;
  OptionLister lister;
  Visit(options, lister);
  return lister.Finish();
}

Result<std::string> ParseText(std::string_view text);              // any text
Result<std::vector<int64_t>> ParseNumbers(std::string_view text);  // ParseRanges, 0 or more

// Options that many tasks share, with the same name and meaning.
struct SampleOptions {
  std::optional<int64_t> n_samples;  // per group, or number of texts; none: all
  uint64_t seed = 0;
};

struct DataOptions : SampleOptions {
  std::string data;  // file or directory
};

template <class Visitor>
void VisitSeed(uint64_t& seed, Visitor& v) {
  v("seed", seed, "N", "seed of all random choices [0]", ParseCount);
}

template <class Visitor>
void VisitSamples(SampleOptions& o, Visitor& v) {
  v("samples", o.n_samples, "N",
    "at most N samples of each part (texts, in perplexity and kld), chosen by the seed; without it "
    "all, in recall 10, in needle and passkey one per cell",
    ParsePositive);
  VisitSeed(o.seed, v);
}

template <class Visitor>
void VisitData(DataOptions& o, Visitor& v) {
  v("data", o.data, "DIR", "the data set as it is published: a directory or a file", ParseText,
    FileUse::kReads);
  VisitSamples(o, v);
}

template <class Visitor>
void VisitTasks(std::vector<std::string>& tasks, Visitor& v) {
  v("tasks", tasks, "LIST", "parts of a benchmark, such as hotpotqa,trec", ParseWords);
}

template <class Visitor>
void VisitLengths(std::vector<int64_t>& lengths, Visitor& v) {
  v("lengths", lengths, "LIST",
    "tokens of a text, or lines, topics, pairs; ranges such as 512-2048+512 too", ParseNumbers);
}

template <class Visitor>
void VisitDepths(std::vector<int64_t>& depths, Visitor& v) {
  v("depths", depths, "LIST", "depths of the fact asked for, in per cent of the text",
    ParseNumbers);
}

// `max_tokens` may be an optional: none then stands for the protocol's number.
template <class MaxTokens, class Visitor>
void VisitMaxTokens(MaxTokens& max_tokens, Visitor& v) {
  v("max_tokens", max_tokens, "N", "maximum tokens of an answer, instead of the protocol's number",
    ParsePositive);
}

template <class Visitor>
void VisitHideQuestion(bool& hide_question, Visitor& v) {
  v("hide_question", hide_question, "the document is read, and compressed, before the question");
}

template <class Visitor>
void VisitShots(std::optional<int64_t>& shots, Visitor& v) {
  v("shots", shots, "N", "solved examples before a question", ParseCount);
}

// The complete options of several tasks.
struct AnswerOptions : DataOptions {
  std::optional<int64_t> max_tokens;
};

template <class Visitor>
void Visit(AnswerOptions& o, Visitor& v) {
  VisitData(o, v);
  VisitMaxTokens(o.max_tokens, v);
}

struct BenchmarkOptions : DataOptions {
  std::vector<std::string> tasks;
  std::optional<int64_t> max_tokens;
};

template <class Visitor>
void Visit(BenchmarkOptions& o, Visitor& v) {
  VisitData(o, v);
  VisitTasks(o.tasks, v);
  VisitMaxTokens(o.max_tokens, v);
}

}  // namespace winnow::eval
