#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/log.h"
#include "base/result.h"
#include "eval/run/prompt.h"
#include "eval/run/workload.h"
#include "eval/tasks/options.h"
#include "report/record.h"

// An evaluation: where its samples come from and how its results are summarized.
namespace winnow::eval {

// One question, window, conversation or measurement. Cheap to hold: its workload is made only when
// it runs.
struct Sample {
  std::string id;         // unique in the task and stable: "hotpotqa/12"
  std::string group;      // averaged first: "hotpotqa"
  report::Record labels;  // its place in a grid: {"length": 2048, "depth": 50}
  std::optional<int64_t> number = std::nullopt;  // its number in the data set, if any
  // Error: why it cannot be run (longer than the context, a field missing).
  std::function<Result<std::unique_ptr<Workload>>()> make;
};

// A column of the tables: how the samples' scores of that name become one number.
struct Column {
  enum class Kind {
    kPercent,     // weighted mean times 100
    kMean,        // weighted mean
    kPerplexity,  // exp of the weighted mean
    kSpread,      // mean, and the standard deviation of single values
  };
  std::string name;  // of the score
  std::string title;
  Kind kind = Kind::kPercent;
  int digits = 2;
  bool relative = true;      // the share of the full cache's value is meaningful
  bool logarithmic = false;  // values differ by powers of ten: log axis, without the zeros
};

struct TaskContext {
  const tokenizer::Tokenizer& tokenizer;
  const PromptWriter& prompts;
  int64_t context = 0;  // tokens that a cache without compression holds
  Log& log;
  // Formats the name of an option for messages as the caller writes it ("--lengths"); null: the
  // plain name.
  std::string (*option_word)(std::string_view name) = nullptr;

  std::string Word(std::string_view option) const;
};

// A task with its options.
struct TaskRun {
  // The samples chosen by the options, in the order of the data. They refer to the context and to
  // what this function holds; both must outlive them. Errors: a file missing or not as expected
  // (names file and format), options out of range (names the option).
  std::function<Result<std::vector<Sample>>(const TaskContext& context)> samples;
  bool reads_token_by_token = false;  // reads texts that have no prompt to compress
  bool limits_memory = false;         // runs as many sequences as fit into a number of bytes
  std::string answers = {};  // folder for the conversations, in the format of FastChat's judge
};

struct Task {
  std::string_view name;
  std::string_view summary;     // what it measures, one line
  std::string_view data;        // the data it expects
  std::string_view repeats;     // experiments of papers that it repeats
  std::vector<Column> columns;  // the first is the one to compare methods by
  // Whether groups are averaged into one number for each method (tasks of a benchmark, cells of a
  // grid), or stay apart because their mean is meaningless (lengths of windows).
  bool averages_groups = true;
  // WithOptions (common.h) sets both. Errors of `configure`: those of ReadOptions.
  std::vector<Option> options = {};
  std::function<Result<TaskRun>(const OptionValues& given)> configure = {};
};

// All tasks, in the order of the documentation.
std::span<const Task> Tasks();
const Task* FindTask(std::string_view name);                        // null if there is none
const Option* FindOption(const Task& task, std::string_view name);  // null if there is none

// At most n of n_items, chosen by the seed, ascending; no n: all. A smaller choice is a subset of a
// larger one.
std::vector<size_t> Choose(size_t n_items, std::optional<int64_t> n, uint64_t seed);
// At most n_samples of every group, in their original order.
std::vector<Sample> ChooseSamples(std::vector<Sample> samples, const SampleOptions& options);

}  // namespace winnow::eval
