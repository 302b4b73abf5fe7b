// TheoremQA: university mathematics, physics and finance with short answers. [arXiv:2305.12524]
#include "eval/metrics/math_answer.h"
#include "eval/tasks/common.h"
#include "eval/tasks/tasks.h"

namespace winnow::eval {
namespace {

constexpr const char* kTheoremQaData =
    "theoremqa_test.json (a list) or .jsonl as TIGER-AI-Lab/TheoremQA publishes it (Question, "
    "Answer, Answer_type)";
constexpr int64_t kTheoremQaMaxTokens = 512;  // [ReFreeKV's repository]

Result<std::unique_ptr<Workload>> Make(const TaskContext& context, const AnswerOptions& options,
                                       const Row& row) {
  Question question;
  question.max_tokens = options.max_tokens.value_or(kTheoremQaMaxTokens);
  WINNOW_ASSIGN(const std::string text, row.Text("Question"));
  const std::string reference = row.TextOrEmpty("Answer");
  const std::string type = row.TextOrEmpty("Answer_type");
  const std::string prompt =
      "Solve the problem. End with \"The answer is\" and the answer.\n\n"
      "Question: " +
      text + "\nAnswer:";
  WINNOW_ASSIGN(question.prompt,
                FormatWithoutCutting(context.prompts, prompt, Style::kChat, question.max_tokens));
  question.stop = {"\nQuestion:"};
  question.references = {reference};
  question.score = [reference, type](const std::string& answer) {
    const bool right = SameMathAnswer(FinalAnswer(answer), reference, type);
    return std::vector<Score>{{"right", right ? 1.0 : 0.0}};
  };
  return MakeWorkload(std::move(question));
}

Result<std::vector<Sample>> Samples(const TaskContext& context, const AnswerOptions& options) {
  WINNOW_TRY(NeedData(context, options.data, kTheoremQaData));
  const auto path = FindIn(
      options.data, {"theoremqa_test.json", "theoremqa_test.jsonl", "test.json", "test.jsonl"});
  if (!path) return Missing(options.data, kTheoremQaData);
  WINNOW_ASSIGN(const std::vector<Row> rows,
                path->ends_with(".jsonl") ? ReadJsonLines(*path) : ReadJsonList(*path));
  std::vector<Sample> samples;
  for (size_t i = 0; i < rows.size(); ++i) {
    for (const char* field : {"Answer", "Answer_type"}) {
      if (!rows[i].Has(field)) return rows[i].FormatError(field, "a value");
    }
    samples.push_back(
        {.id = std::to_string(i),
         .group = "theoremqa",
         .labels = {{"type", rows[i].TextOrEmpty("Answer_type")}},
         .make = [&context, &options, row = rows[i]] { return Make(context, options, row); }});
  }
  return ChooseSamples(std::move(samples), options);
}

}  // namespace

Task TheoremQaTask() {
  return WithOptions<AnswerOptions>(
      {.name = "theoremqa",
       .summary = "problems of university mathematics; numbers may be 4 % off",
       .data = kTheoremQaData,
       .repeats = "ReFreeKV's repository",
       .columns = {{.name = "right", .title = "right"}}},
      Samples);
}

}  // namespace winnow::eval
