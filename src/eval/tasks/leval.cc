// L-Eval: several questions on each long document. [arXiv:2307.11088]
#include <filesystem>

#include "eval/metrics/keywords.h"
#include "eval/metrics/math_answer.h"
#include "eval/metrics/normalise.h"
#include "eval/metrics/option_letter.h"
#include "eval/metrics/pattern.h"
#include "eval/metrics/qa_f1.h"
#include "eval/metrics/rouge.h"
#include "eval/tasks/common.h"
#include "eval/tasks/tasks.h"

namespace winnow::eval {
namespace {

constexpr const char* kLEvalData =
    "TASK.jsonl as OpenLMLab/LEval publishes them (instructions, outputs, input, evaluation; one "
    "object per line)";

enum class LEvalMetric { kLetters, kNumber, kTrueFalse, kFound, kF1, kRougeL };

struct Rule {
  LEvalMetric metric = LEvalMetric::kRougeL;
  int64_t max_tokens = 512;  // [L-Eval's generation limit]
};

Rule FindRule(std::string_view task, std::string_view evaluation) {
  if (evaluation == "exam") {
    if (task.starts_with("gsm")) return {LEvalMetric::kNumber, 300};
    if (task.starts_with("sci_fi")) return {LEvalMetric::kTrueFalse, 16};
    if (task.starts_with("topic_retrieval")) return {LEvalMetric::kFound, 50};
    if (task.starts_with("codeU")) return {LEvalMetric::kFound, 100};
    return {LEvalMetric::kLetters, 32};  // coursera, quality, tpo
  }
  if (evaluation == "f1") return {LEvalMetric::kF1, 128};
  return {LEvalMetric::kRougeL, 512};  // "rouge", and what L-Eval leaves to a judge
}

std::string TrueOrFalse(std::string_view text) {
  static const Pattern kWord("(?i)\\b(true|false)\\b");
  std::string word;
  kWord.Find(text, &word);
  return Lowercase(word);
}

// An answer that states nothing is wrong, even if the reference states nothing either.
double SameAndStated(const std::string& answer, const std::string& reference) {
  return !answer.empty() && answer == reference ? 1 : 0;
}

double ScoreAnswer(LEvalMetric metric, const std::string& answer, const std::string& reference) {
  switch (metric) {
    case LEvalMetric::kLetters:
      return SameAndStated(OptionLetters(answer, 'H'), OptionLetters(reference, 'H'));
    case LEvalMetric::kNumber:
      return SameAndStated(LastNumber(answer), LastNumber(reference));
    case LEvalMetric::kTrueFalse:
      // "True [fact: False]": first by the document, then in brackets by the real world.
      return SameAndStated(TrueOrFalse(answer), TrueOrFalse(reference));
    case LEvalMetric::kFound:
      return reference.empty() ? 0 : FoundFraction(answer, std::span(&reference, 1));
    case LEvalMetric::kF1:
      return QaF1(answer, reference);
    case LEvalMetric::kRougeL:
      return RougeL(answer, reference);
  }
  return 0;
}

struct LEvalTest {
  Rule rule;
  std::string document, instruction, answer;
};

Result<std::unique_ptr<Workload>> Make(const TaskContext& context, const BenchmarkOptions& options,
                                       const LEvalTest& test) {
  Question question;
  question.max_tokens = options.max_tokens.value_or(test.rule.max_tokens);
  // gsm100's examples and instructions contain "Question:" themselves.
  const std::string text = test.rule.metric == LEvalMetric::kNumber
                               ? test.document + test.instruction
                               : DocumentQuestion(context.prompts, test.document, test.instruction);
  WINNOW_ASSIGN(question.prompt, context.prompts.Write(text, Style::kChat, question.max_tokens));
  question.stop = {"\nQuestion:"};
  question.references = {test.answer};
  question.score = [metric = test.rule.metric, reference = test.answer](const std::string& answer) {
    return std::vector<Score>{{"score", ScoreAnswer(metric, answer, reference)}};
  };
  return MakeWorkload(std::move(question));
}

Result<std::vector<Sample>> Samples(const TaskContext& context, const BenchmarkOptions& options) {
  WINNOW_TRY(NeedData(context, options.data, kLEvalData));
  WINNOW_ASSIGN(const std::vector<std::string> files, ListFiles(options.data, ".jsonl"));
  std::vector<std::string> names;
  names.reserve(files.size());
  for (const std::string& path : files) {
    names.push_back(std::filesystem::path(path).stem().string());
  }
  WINNOW_ASSIGN(const std::vector<std::string> wanted, ChooseTasks(context, names, options.tasks));
  std::vector<Sample> samples;
  for (size_t file = 0; file < files.size(); ++file) {
    if (std::find(wanted.begin(), wanted.end(), names[file]) == wanted.end()) continue;
    WINNOW_ASSIGN(const std::vector<Row> rows, ReadJsonLines(files[file]));
    for (size_t i = 0; i < rows.size(); ++i) {
      LEvalTest test;
      test.rule = FindRule(names[file], rows[i].TextOrEmpty("evaluation"));
      WINNOW_ASSIGN(test.document, rows[i].Text("input"));
      WINNOW_ASSIGN(const std::vector<std::string> questions, rows[i].Texts("instructions"));
      WINNOW_ASSIGN(const std::vector<std::string> answers, rows[i].Texts("outputs"));
      if (questions.size() != answers.size()) {
        return rows[i].FormatError("outputs", "as many texts as 'instructions' has");
      }
      for (size_t k = 0; k < questions.size(); ++k) {
        test.instruction = questions[k];
        test.answer = answers[k];
        samples.push_back(
            {.id = names[file] + "/" + std::to_string(i) + "/" + std::to_string(k),
             .group = names[file],
             .labels = {},
             .make = [&context, &options, test] { return Make(context, options, test); }});
      }
    }
  }
  if (samples.empty()) return Missing(options.data, kLEvalData);
  return ChooseSamples(std::move(samples), options);
}

}  // namespace

Task LEvalTask() {
  return WithOptions<BenchmarkOptions>(
      {.name = "leval",
       .summary = "questions on long documents: letters, numbers, true or false, F1 and ROUGE-L as "
                  "the record asks",
       .data = kLEvalData,
       .repeats = "none of the five papers' tables",
       .columns = {{.name = "score", .title = "score"}}},
      Samples);
}

}  // namespace winnow::eval
