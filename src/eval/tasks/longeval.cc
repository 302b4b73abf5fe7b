// LongEval: retrieval of one of many lines, or of the first of many topics. [lm-sys LongChat]
#include "eval/metrics/keywords.h"
#include "eval/metrics/number_match.h"
#include "eval/tasks/common.h"
#include "eval/tasks/tasks.h"

namespace winnow::eval {
namespace {

constexpr const char* kLongEvalData =
    "N_lines*.jsonl (prompt, expected_number) or N_topics*.jsonl (prompt, topics) as "
    "DachengLi1/LongChat publishes them, one object per line";
constexpr int64_t kLinesTokens = 15;   // of an answer [ours: " 12345" and a few words]
constexpr int64_t kTopicsTokens = 50;  // [its eval script]

struct LongEvalOptions : DataOptions {
  std::vector<int64_t> lengths;
  std::optional<int64_t> max_tokens;
};

template <class Visitor>
void Visit(LongEvalOptions& o, Visitor& v) {
  VisitData(o, v);
  VisitLengths(o.lengths, v);
  VisitMaxTokens(o.max_tokens, v);
}

struct LongEvalTest {
  std::string prompt;
  std::string answer;
  bool lines = false;
};

Result<LongEvalTest> ReadTest(const Row& row) {
  LongEvalTest test;
  WINNOW_ASSIGN(test.prompt, row.Text("prompt"));
  if (row.Has("expected_number")) {
    test.lines = true;
    test.answer = row.TextOrEmpty("expected_number");
    return test;
  }
  if (!row.Has("topics")) return row.FormatError("expected_number", "this field or 'topics'");
  WINNOW_ASSIGN(const std::vector<std::string> topics, row.Texts("topics"));
  if (topics.empty()) return row.FormatError("topics", "at least one topic");
  test.answer = topics[0];
  return test;
}

Result<std::unique_ptr<Workload>> Make(const TaskContext& context, const LongEvalOptions& options,
                                       const LongEvalTest& test) {
  Question question;
  question.max_tokens = options.max_tokens.value_or(test.lines ? kLinesTokens : kTopicsTokens);
  WINNOW_ASSIGN(question.prompt, FormatWithoutCutting(context.prompts, test.prompt, Style::kChat,
                                                      question.max_tokens));
  question.references = {test.answer};
  question.score = [test](const std::string& answer) {
    const double right = test.lines ? (FirstNumber(answer) == test.answer ? 1 : 0)
                                    : FoundFraction(answer, std::span(&test.answer, 1));
    return std::vector<Score>{{"right", right}};
  };
  return MakeWorkload(std::move(question));
}

Result<std::vector<Sample>> Samples(const TaskContext& context, const LongEvalOptions& options) {
  WINNOW_TRY(NeedData(context, options.data, kLongEvalData));
  WINNOW_ASSIGN(const std::vector<std::string> files, ListFiles(options.data, ".jsonl"));
  std::vector<Sample> samples;
  for (const std::string& path : files) {
    const std::string name = FileName(path);
    const std::string number = FirstNumber(name);
    const int64_t n = number.empty() ? 0 : std::stoll(number.substr(0, 9));
    if (!Names(options.lengths, n)) continue;
    WINNOW_ASSIGN(const std::vector<Row> rows, ReadJsonLines(path));
    for (size_t i = 0; i < rows.size(); ++i) {
      WINNOW_ASSIGN(const LongEvalTest test, ReadTest(rows[i]));
      const std::string group = std::to_string(n) + (test.lines ? " lines" : " topics");
      samples.push_back(
          {.id = name + "/" + std::to_string(i),
           .group = group,
           .labels = {{test.lines ? "lines" : "topics", n}},
           .make = [&context, &options, test] { return Make(context, options, test); }});
    }
  }
  if (samples.empty()) return Missing(options.data, kLongEvalData);
  return ChooseSamples(std::move(samples), options);
}

}  // namespace

Task LongEvalTask() {
  return WithOptions<LongEvalOptions>(
      {.name = "longeval",
       .summary = "the number in one of many lines, or the first topic of a long conversation",
       .data = kLongEvalData,
       .repeats = "none of the five papers' tables; exact retrieval at growing length",
       .columns = {{.name = "right", .title = "right"}}},
      Samples);
}

}  // namespace winnow::eval
