// RULER: retrieval, tracing and counting in made-up texts. [arXiv:2404.06654]
#include <filesystem>

#include "eval/metrics/keywords.h"
#include "eval/metrics/pattern.h"
#include "eval/metrics/qa_f1.h"
#include "eval/tasks/common.h"
#include "eval/tasks/tasks.h"

namespace winnow::eval {
namespace {

namespace fs = std::filesystem;

constexpr const char* kRulerData =
    "[LENGTH/]TASK.jsonl as NVIDIA/RULER writes them (index, input, outputs, length; one object "
    "per line; the end of an input may be apart, as question)";

struct RulerOptions : DataOptions {
  std::vector<int64_t> lengths;
  std::vector<std::string> tasks;
  std::optional<int64_t> max_tokens;
  bool hide_question = false;
};

template <class Visitor>
void Visit(RulerOptions& o, Visitor& v) {
  VisitData(o, v);
  VisitTasks(o.tasks, v);
  VisitLengths(o.lengths, v);
  VisitMaxTokens(o.max_tokens, v);
  VisitHideQuestion(o.hide_question, v);
}

// Tokens of an answer. [RULER's constants]
int64_t MaxTokens(std::string_view task) {
  if (task.starts_with("niah")) return 128;
  if (task.starts_with("vt")) return 30;
  if (task.starts_with("cwe")) return 120;
  if (task.starts_with("fwe")) return 50;
  return 32;  // qa
}

double ScoreAnswer(std::string_view task, std::string_view answer,
                   std::span<const std::string> outputs) {
  if (!task.starts_with("qa")) return FoundFraction(answer, outputs);
  const auto found = [](std::string_view text, const std::string& output) {
    return FoundFraction(text, std::span(&output, 1));
  };
  return MaxOverReferences(found, answer, outputs);
}

// The question of a row, with its whole prompt.
Result<Question> Read(const TaskContext& context, const RulerOptions& options,
                      const std::string& task, const Row& row) {
  Question question;
  question.max_tokens = options.max_tokens.value_or(MaxTokens(task));
  WINNOW_ASSIGN(std::string text, row.Text("input"));
  WINNOW_ASSIGN(question.references, row.Texts("outputs"));
  if (row.Has("question") || options.hide_question) {
    WINNOW_ASSIGN(const std::string asked, row.Text("question"));
    text += asked;
  }
  WINNOW_ASSIGN(question.prompt,
                FormatWithoutCutting(context.prompts, text, Style::kChat, question.max_tokens));
  question.score = [task, outputs = question.references](const std::string& answer) {
    return std::vector<Score>{{"score", ScoreAnswer(task, answer, outputs)}};
  };
  return question;
}

Result<std::unique_ptr<Workload>> Make(const TaskContext& context, const RulerOptions& options,
                                       const std::string& task, std::span<const Row> rows) {
  std::vector<Question> questions;
  questions.reserve(rows.size());
  for (const Row& row : rows) {
    WINNOW_ASSIGN(Question question, Read(context, options, task, row));
    questions.push_back(std::move(question));
  }
  if (!options.hide_question) return MakeWorkload(std::move(questions.front()));
  WINNOW_ASSIGN(const std::string input, rows.front().Text("input"));
  auto n = static_cast<int64_t>(questions.front().prompt.tokens.size()) - 1;
  for (const Question& question : questions) {
    WINNOW_ASSIGN(const int64_t n_shared,
                  DocumentTokens(context.prompts, input, question.prompt.tokens));
    n = std::min(n, n_shared);
  }
  return MakeWorkload(DocumentBeforeQuestions(questions, n));
}

// The number of leading rows that form one sample: one, or all questions about its document.
size_t CountOfSample(const RulerOptions& options, std::span<const Row> rows) {
  if (!options.hide_question) return 1;
  const std::string input = rows.front().TextOrEmpty("input");
  const auto is_other = [&](const Row& row) { return row.TextOrEmpty("input") != input; };
  return static_cast<size_t>(std::find_if(rows.begin() + 1, rows.end(), is_other) - rows.begin());
}

struct File {
  std::string path;
  std::string task;
  int64_t length = 0;  // from the folder's name; 0: none
};

Result<std::vector<File>> Files(const RulerOptions& options) {
  const std::string& data = options.data;
  std::vector<File> files;
  const auto add = [&](const std::string& folder, int64_t length) -> Result<void> {
    WINNOW_ASSIGN(const std::vector<std::string> paths, ListFiles(folder, ".jsonl"));
    for (const std::string& path : paths) {
      files.push_back({path, fs::path(path).stem().string(), length});
    }
    return {};
  };
  WINNOW_TRY(add(data, 0));
  std::error_code problem;
  std::vector<int64_t> lengths;
  if (fs::is_directory(data, problem)) {
    static const Pattern kNumber("^[1-9]\\d{0,8}$");
    for (const fs::directory_entry& entry : fs::directory_iterator(data, problem)) {
      const std::string name = entry.path().filename().string();
      if (entry.is_directory(problem) && !kNumber.FindAll(name).empty()) {
        lengths.push_back(std::stoll(name));
      }
    }
  }
  std::sort(lengths.begin(), lengths.end());
  for (const int64_t length : lengths) {
    if (!Names(options.lengths, length)) continue;
    WINNOW_TRY(add((fs::path(data) / std::to_string(length)).string(), length));
  }
  if (files.empty()) return Missing(data, kRulerData);
  return files;
}

Result<std::vector<Sample>> Samples(const TaskContext& context, const RulerOptions& options) {
  WINNOW_TRY(NeedData(context, options.data, kRulerData));
  WINNOW_ASSIGN(const std::vector<File> files, Files(options));
  std::vector<std::string> names;
  for (const File& file : files) {
    if (std::find(names.begin(), names.end(), file.task) == names.end()) names.push_back(file.task);
  }
  WINNOW_ASSIGN(const std::vector<std::string> wanted, ChooseTasks(context, names, options.tasks));
  std::vector<Sample> samples;
  for (const File& file : files) {
    if (std::find(wanted.begin(), wanted.end(), file.task) == wanted.end()) continue;
    WINNOW_ASSIGN(const std::vector<Row> rows, ReadJsonLines(file.path));
    const std::string group =
        file.length > 0 ? std::to_string(file.length) + "/" + file.task : file.task;
    for (size_t i = 0, n = 0; i < rows.size(); i += n) {
      n = CountOfSample(options, std::span(rows).subspan(i));
      report::Record labels = {{"task", file.task}};
      if (file.length > 0) labels.Add("length", file.length);
      if (const report::Value* depth = rows[i].record().Find("depth")) labels.Add("depth", *depth);
      const auto first = rows.begin() + static_cast<std::ptrdiff_t>(i);
      samples.push_back(
          {.id = group + "/" + std::to_string(i),
           .group = group,
           .labels = std::move(labels),
           .make = [&context, &options, task = file.task,
                    of_sample = std::vector<Row>(first, first + static_cast<std::ptrdiff_t>(n))] {
             return Make(context, options, task, of_sample);
           }});
    }
  }
  return ChooseSamples(std::move(samples), options);
}

}  // namespace

Task RulerTask() {
  return WithOptions<RulerOptions>(
      {.name = "ruler",
       .summary = "share of the wanted texts found in the answer, for retrieval, variable tracing "
                  "and word counting at growing length",
       .data = kRulerData,
       .repeats = "none of the five papers' tables; the hardest public retrieval test",
       .columns = {{.name = "score", .title = "found"}}},
      Samples);
}

}  // namespace winnow::eval
