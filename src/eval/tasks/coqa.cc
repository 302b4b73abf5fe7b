// CoQA: the last question of a conversation about a story. [arXiv:1808.07042; prompt and scoring as
// in the LM evaluation harness]
#include <algorithm>

#include "eval/metrics/normalise.h"
#include "eval/metrics/qa_f1.h"
#include "eval/tasks/common.h"
#include "eval/tasks/tasks.h"

namespace winnow::eval {
namespace {

constexpr const char* kCoqaData =
    "coqa-dev-v1.0.json as stanfordnlp publishes it ({\"data\": [{story, questions, answers, "
    "additional_answers}]})";
constexpr int64_t kCoqaMaxTokens = 20;  // [ReFreeKV's repository]

struct Dialogue {
  std::string prompt;
  std::vector<std::string> answers;  // to the last question
};

Result<std::string> TurnText(const std::vector<Row>& turns, size_t turn) {
  if (turn >= turns.size()) return Error{"fewer answers than questions"};
  return turns[turn].Text("input_text");
}

Result<Dialogue> ReadDialogue(const Row& row) {
  WINNOW_ASSIGN(const std::string story, row.Text("story"));
  WINNOW_ASSIGN(const std::vector<Row> questions, row.Rows("questions"));
  WINNOW_ASSIGN(const std::vector<Row> answers, row.Rows("answers"));
  if (questions.empty()) return row.FormatError("questions", "at least one");
  Dialogue dialogue;
  dialogue.prompt = story + "\n\n";
  for (size_t turn = 0; turn < questions.size(); ++turn) {
    WINNOW_ASSIGN(const std::string question, questions[turn].Text("input_text"));
    WINNOW_ASSIGN(const std::string answer, TurnText(answers, turn));
    const bool last = turn + 1 == questions.size();
    dialogue.prompt += "Q: " + question + "\n\nA:" + (last ? "" : " " + answer + "\n\n");
    if (last) dialogue.answers.push_back(answer);
  }
  if (!row.Has("additional_answers")) return dialogue;
  WINNOW_ASSIGN(const Row others, row.Object("additional_answers"));
  for (const report::Field& field : others.record().fields) {
    WINNOW_ASSIGN(const std::vector<Row> turns, others.Rows(field.name));
    WINNOW_ASSIGN(const std::string answer, TurnText(turns, questions.size() - 1));
    const bool known = std::any_of(
        dialogue.answers.begin(), dialogue.answers.end(),
        [&](const std::string& other) { return Lowercase(other) == Lowercase(answer); });
    if (!known) dialogue.answers.push_back(answer);
  }
  return dialogue;
}

// Leaves out one reference at a time and takes the mean, so that scores are comparable with those
// of people, who are scored against one reference less. [CoQA's scorer]
double LeaveOneOut(double (*metric)(std::string_view, std::string_view), std::string_view answer,
                   const std::vector<std::string>& references) {
  if (references.size() < 2) return MaxOverReferences(metric, answer, references);
  double sum = 0;
  for (size_t out = 0; out < references.size(); ++out) {
    std::vector<std::string> others = references;
    others.erase(others.begin() + static_cast<ptrdiff_t>(out));
    sum += MaxOverReferences(metric, answer, others);
  }
  return sum / static_cast<double>(references.size());
}

Result<std::unique_ptr<Workload>> Make(const TaskContext& context, const AnswerOptions& options,
                                       const Dialogue& dialogue) {
  Question question;
  question.max_tokens = options.max_tokens.value_or(kCoqaMaxTokens);
  WINNOW_ASSIGN(question.prompt,
                context.prompts.Write(dialogue.prompt, Style::kChat, question.max_tokens));
  question.stop = {"\nQ:"};
  question.references = dialogue.answers;
  question.score = [answers = dialogue.answers](const std::string& text) {
    // Only the first line is the answer.
    const std::string answer = Trimmed(text).substr(0, Trimmed(text).find('\n'));
    return std::vector<Score>{{"exact", LeaveOneOut(ExactMatch, answer, answers)},
                              {"f1", LeaveOneOut(QaF1, answer, answers)}};
  };
  return MakeWorkload(std::move(question));
}

Result<std::vector<Sample>> Samples(const TaskContext& context, const AnswerOptions& options) {
  WINNOW_TRY(NeedData(context, options.data, kCoqaData));
  const auto path = FindIn(options.data, {"coqa-dev-v1.0.json", "dev.json"});
  if (!path) return Missing(options.data, kCoqaData);
  WINNOW_ASSIGN(const std::vector<Row> rows, ReadJsonList(*path, "data"));
  std::vector<Sample> samples;
  for (size_t i = 0; i < rows.size(); ++i) {
    WINNOW_ASSIGN(const Dialogue dialogue, ReadDialogue(rows[i]));
    samples.push_back(
        {.id = std::to_string(i),
         .group = "coqa",
         .labels = {},
         .make = [&context, &options, dialogue] { return Make(context, options, dialogue); }});
  }
  return ChooseSamples(std::move(samples), options);
}

}  // namespace

Task CoqaTask() {
  return WithOptions<AnswerOptions>(
      {.name = "coqa",
       .summary = "the last question of a conversation about a story, with all turns before it",
       .data = kCoqaData,
       .repeats = "D2O's CoQA curves and ablations, ReFreeKV's main table",
       .columns = {{.name = "exact", .title = "exact"}, {.name = "f1", .title = "F1"}}},
      Samples);
}

}  // namespace winnow::eval
