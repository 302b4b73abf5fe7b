// GSM8K: arithmetic word problems after solved examples. [arXiv:2110.14168; prompt and scoring as
// in the LM evaluation harness]
#include "eval/metrics/math_answer.h"
#include "eval/tasks/common.h"
#include "eval/tasks/tasks.h"

namespace winnow::eval {
namespace {

constexpr const char* kGsm8kData =
    "test*.jsonl and, for examples, train*.jsonl as openai/grade-school-math publishes them "
    "(question, answer ending in \"#### NUMBER\"; one object per line)";
constexpr int64_t kGsm8kShots = 5;        // [LM evaluation harness]
constexpr int64_t kGsm8kMaxTokens = 256;  // [same]

struct Gsm8kOptions : DataOptions {
  std::optional<int64_t> shots;
  std::optional<int64_t> max_tokens;
};

template <class Visitor>
void Visit(Gsm8kOptions& o, Visitor& v) {
  VisitData(o, v);
  VisitShots(o.shots, v);
  VisitMaxTokens(o.max_tokens, v);
}

struct Problem {
  std::string question, answer;
};

Result<std::vector<Problem>> Read(const std::vector<std::string>& files, std::string_view prefix) {
  std::vector<Problem> problems;
  for (const std::string& path : files) {
    if (files.size() > 1 && !FileName(path).starts_with(prefix)) continue;
    WINNOW_ASSIGN(const std::vector<Row> rows, ReadJsonLines(path));
    for (const Row& row : rows) {
      Problem& problem = problems.emplace_back();
      WINNOW_ASSIGN(problem.question, row.Text("question"));
      WINNOW_ASSIGN(problem.answer, row.Text("answer"));
      if (NumberAfterHashes(problem.answer).empty()) {
        return row.FormatError("answer", "a text that ends in #### and a number");
      }
    }
  }
  return problems;
}

Result<std::unique_ptr<Workload>> Make(const TaskContext& context, const Gsm8kOptions& options,
                                       const std::string& examples, const Problem& problem) {
  Question question;
  question.max_tokens = options.max_tokens.value_or(kGsm8kMaxTokens);
  const std::string text = examples + "Question: " + problem.question + "\nAnswer:";
  WINNOW_ASSIGN(question.prompt,
                FormatWithoutCutting(context.prompts, text, Style::kChat, question.max_tokens));
  question.stop = {"Question:"};
  const std::string number = NumberAfterHashes(problem.answer);
  question.references = {number};
  question.score = [number](const std::string& answer) {
    return std::vector<Score>{{"exact", NumberAfterHashes(answer) == number ? 1.0 : 0.0},
                              {"last_number", LastNumber(answer) == number ? 1.0 : 0.0}};
  };
  return MakeWorkload(std::move(question));
}

Result<std::vector<Sample>> Samples(const TaskContext& context, const Gsm8kOptions& options) {
  WINNOW_TRY(NeedData(context, options.data, kGsm8kData));
  WINNOW_ASSIGN(const std::vector<std::string> files, ListFiles(options.data, ".jsonl"));
  WINNOW_ASSIGN(const std::vector<Problem> problems, Read(files, "test"));
  if (problems.empty()) return Missing(options.data, kGsm8kData);
  std::string examples;
  const int64_t n_shots = options.shots.value_or(files.size() > 1 ? kGsm8kShots : 0);
  if (n_shots > 0) {
    if (files.size() < 2)
      return Missing(options.data, "train*.jsonl, for " + context.Word("shots"));
    WINNOW_ASSIGN(const std::vector<Problem> solved, Read(files, "train"));
    if (static_cast<int64_t>(solved.size()) < n_shots) {
      return OptionError(context, "shots",
                         "found " + std::to_string(solved.size()) + " solved examples, wanted " +
                             std::to_string(n_shots));
    }
    for (const size_t i : Choose(solved.size(), n_shots, options.seed)) {
      examples += "Question: " + solved[i].question + "\nAnswer: " + solved[i].answer + "\n\n";
    }
  }
  std::vector<Sample> samples;
  for (size_t i = 0; i < problems.size(); ++i) {
    samples.push_back({.id = std::to_string(i),
                       .group = "gsm8k",
                       .labels = {},
                       .make = [&context, &options, examples, problem = problems[i]] {
                         return Make(context, options, examples, problem);
                       }});
  }
  return ChooseSamples(std::move(samples), options);
}

}  // namespace

Task Gsm8kTask() {
  return WithOptions<Gsm8kOptions>(
      {.name = "gsm8k",
       .summary = "word problems of arithmetic after solved examples; the number after #### must "
                  "be right",
       .data = kGsm8kData,
       .repeats = "D2O's reasoning curves, ReFreeKV's main table",
       .columns = {{.name = "exact", .title = "exact"},
                   {.name = "last_number", .title = "last number"}}},
      Samples);
}

}  // namespace winnow::eval
