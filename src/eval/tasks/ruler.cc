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

constexpr const char* kData =
    "[LENGTH/]TASK.jsonl as NVIDIA/RULER writes them (index, input, outputs, length; one object "
    "per "
    "line)";

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

Result<std::unique_ptr<Workload>> Make(const TaskContext& context, const std::string& task,
                                       const Row& row) {
  Question question;
  question.max_tokens = Or(context.options.max_tokens, MaxTokens(task));
  WINNOW_ASSIGN(const std::string input, row.Text("input"));
  WINNOW_ASSIGN(question.references, row.Texts("outputs"));
  WINNOW_ASSIGN(question.prompt,
                FormatWithoutCutting(context.prompts, input, Style::kChat, question.max_tokens));
  question.score = [task, outputs = question.references](const std::string& answer) {
    return std::vector<Score>{{"score", ScoreAnswer(task, answer, outputs)}};
  };
  return MakeWorkload(std::move(question));
}

struct File {
  std::string path;
  std::string task;
  int64_t length = 0;  // of the folder's name; 0: none
};

Result<std::vector<File>> Files(const TaskContext& context) {
  const std::string& data = context.options.data;
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
    if (!Names(context.options.lengths, length)) continue;
    WINNOW_TRY(add((fs::path(data) / std::to_string(length)).string(), length));
  }
  if (files.empty()) return Missing(data, kData);
  return files;
}

Result<std::vector<Sample>> Samples(const TaskContext& context) {
  WINNOW_TRY(NeedData(context, kData));
  WINNOW_ASSIGN(const std::vector<File> files, Files(context));
  std::vector<std::string> names;
  for (const File& file : files) {
    if (std::find(names.begin(), names.end(), file.task) == names.end()) names.push_back(file.task);
  }
  WINNOW_ASSIGN(const std::vector<std::string> wanted, ChooseTasks(names, context.options.tasks));
  std::vector<Sample> samples;
  for (const File& file : files) {
    if (std::find(wanted.begin(), wanted.end(), file.task) == wanted.end()) continue;
    WINNOW_ASSIGN(const std::vector<Row> rows, ReadJsonLines(file.path));
    const std::string group =
        file.length > 0 ? std::to_string(file.length) + "/" + file.task : file.task;
    for (size_t i = 0; i < rows.size(); ++i) {
      report::Record labels = {{"task", file.task}};
      if (file.length > 0) labels.Add("length", file.length);
      if (const report::Value* depth = rows[i].record().Find("depth")) labels.Add("depth", *depth);
      samples.push_back({.id = group + "/" + std::to_string(i),
                         .group = group,
                         .labels = std::move(labels),
                         .make = [&context, task = file.task, row = rows[i]] {
                           return Make(context, task, row);
                         }});
    }
  }
  return ChooseSamples(std::move(samples), context.options);
}

}  // namespace

Task RulerTask() {
  return {.name = "ruler",
          .summary =
              "share of the wanted texts found in the answer, for retrieval, variable tracing "
              "and word counting at growing length",
          .data = kData,
          .repeats = "none of the five papers' tables; the hardest public retrieval test",
          .flags = {"--lengths", "--tasks", "-n"},
          .columns = {{.name = "score", .title = "found"}},
          .samples = Samples};
}

}  // namespace winnow::eval
