#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/log.h"
#include "base/result.h"
#include "eval/run/prompt.h"
#include "eval/run/workload.h"
#include "report/record.h"

// An evaluation: where its samples come from and how its results are read.
namespace winnow::eval {

// One question, window, conversation or measurement. Cheap to hold: its work is made when its turn
// comes.
struct Sample {
  std::string id;         // unique in the task and stable: "hotpotqa/12"
  std::string group;      // what is averaged first: "hotpotqa"
  report::Record labels;  // where it stands in a grid: {"length": 2048, "depth": 50}
  // Error: it cannot be run (longer than the context, a field missing), and why.
  std::function<Result<std::unique_ptr<Workload>>()> make;
};

// A number of the tables: how the samples' scores of that name become one.
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
  bool relative = true;      // the share of the full cache's value means something
  bool logarithmic = false;  // values differ by powers of ten: drawn so, without the zeros
};

struct GridCell {
  int64_t n_prompt = 0;
  int64_t n_generate = 0;
  bool operator==(const GridCell&) const = default;
};

// What the flags say. Empty lists, empty texts and -1: the task's own default.
struct TaskOptions {
  std::string data;        // file or directory
  int64_t n_samples = -1;  // per group, or texts
  uint64_t seed = 0;
  std::vector<std::string> tasks;  // parts of a benchmark
  std::string jieba;               // folder of the Python package, for Chinese words
  std::vector<int64_t> lengths;    // tokens; pairs of kv-retrieval
  std::vector<int64_t> depths;     // per cent of the text
  int64_t chunks = -1;             // windows of a text
  int64_t stride = -1;             // tokens between windows
  int64_t every = -1;              // tokens between points of a curve
  std::string protocol;
  int64_t shots = -1;       // solved examples before a question
  int64_t max_tokens = -1;  // of an answer
  std::string by;           // how a choice is made
  int64_t n_needles = -1;
  std::string needle, question, answer;
  std::string form;            // of a prompt, with {document} and {question}
  bool hide_question = false;  // the document is read, and compressed, before the question
  std::vector<GridCell> grid;
  int64_t runs = -1;
  int64_t memory_limit = -1;  // bytes
  std::string answers;        // folder
};

struct TaskContext {
  const TaskOptions& options;
  const tokenizer::Tokenizer& tokenizer;
  const PromptWriter& prompts;
  int64_t context = 0;  // tokens that a cache without compression holds
  Log& log;
};

struct Task {
  std::string_view name;
  std::string_view summary;             // what it measures, one line
  std::string_view data;                // what --data must hold
  std::string_view repeats;             // experiments of papers
  std::vector<std::string_view> flags;  // of TaskOptions, as on the command line, that it obeys
  std::vector<Column> columns;          // the first is the one to compare methods by
  // Whether groups are averaged into one number for each method (tasks of a benchmark, cells of a
  // grid), or stand apart because their mean says nothing (lengths of windows).
  bool averages_groups = true;
  // Whether these options make it read texts token by token, without a prompt to compress; null: it
  // never does.
  bool (*reads_token_by_token)(const TaskOptions& options) = nullptr;
  // The samples chosen by the options, in the order of the data. They refer to the context, which
  // must outlive them. Errors: a file missing or not as expected (names file and format), options
  // out of range (names the flag).
  Result<std::vector<Sample>> (*samples)(const TaskContext& context);
};

// All tasks, in the order of the documentation.
std::span<const Task> Tasks();
const Task* FindTask(std::string_view name);  // null if there is none

// At most n of n_items, chosen by the seed, ascending; -1: all. A smaller choice is part of a
// larger one.
std::vector<size_t> Choose(size_t n_items, int64_t n, uint64_t seed);
// At most n_samples of every group; the order stays.
std::vector<Sample> ChooseSamples(std::vector<Sample> samples, const TaskOptions& options);

}  // namespace winnow::eval
