#include "eval/tasks/multiple_choice_data.h"

#include <algorithm>
#include <filesystem>
#include <iterator>
#include <utility>

#include "base/rng.h"
#include "eval/tasks/common.h"
#include "eval/tasks/data.h"

namespace winnow::eval {
namespace {

namespace fs = std::filesystem;

using Questions = std::vector<ChoiceQuestion>;

Result<size_t> LetterIndex(const Row& row, std::string_view field, size_t n_options) {
  const std::string letter = row.TextOrEmpty(field);
  const size_t index = letter.size() == 1 ? static_cast<size_t>(letter[0] - 'A') : n_options;
  if (index >= n_options) return row.FormatError(field, "the letter of an option");
  return index;
}

Result<Questions> ReadGpqa(const std::vector<Row>& rows, uint64_t seed) {
  Questions questions;
  Rng rng(seed);
  for (const Row& row : rows) {
    ChoiceQuestion& question = questions.emplace_back();
    question.id = "gpqa/" + std::to_string(questions.size() - 1);
    question.group = "gpqa";
    WINNOW_ASSIGN(question.question, row.Text("Question"));
    for (const char* name :
         {"Correct Answer", "Incorrect Answer 1", "Incorrect Answer 2", "Incorrect Answer 3"}) {
      WINNOW_ASSIGN(std::string option, row.Text(name));
      question.options.push_back(std::move(option));
    }
    question.right = rng.Below(question.options.size());
    std::swap(question.options[0], question.options[question.right]);
  }
  return questions;
}

Result<Questions> ReadMmluFile(const std::string& path, const std::string& subject) {
  WINNOW_ASSIGN(const std::vector<Row> rows, ReadCsv(path, false));
  Questions questions;
  for (const Row& row : rows) {
    ChoiceQuestion& question = questions.emplace_back();
    question.id = subject + "/" + std::to_string(questions.size() - 1);
    question.group = subject;
    if (row.record().fields.size() != 6) {
      return Error{row.where() + ": found " + std::to_string(row.record().fields.size()) +
                   " cells, expected 6 as in MMLU: question, A, B, C, D, letter"};
    }
    WINNOW_ASSIGN(question.question, row.Text("0"));
    for (const char* name : {"1", "2", "3", "4"}) question.options.push_back(row.TextOrEmpty(name));
    WINNOW_ASSIGN(question.right, LetterIndex(row, "5", question.options.size()));
  }
  return questions;
}

// "anatomy" of "test/anatomy_test.csv".
std::string SubjectFromPath(const std::string& path) {
  std::string stem = fs::path(path).stem().string();
  for (const std::string_view ending : {"_test", "_dev", "_val"}) {
    if (stem.ends_with(ending)) stem.resize(stem.size() - ending.size());
  }
  return stem;
}

Result<Questions> ReadMmlu(const std::string& path) {
  const std::string subject = SubjectFromPath(path);
  WINNOW_ASSIGN(Questions questions, ReadMmluFile(path, subject));
  const fs::path dev = fs::path(path).parent_path().parent_path() / "dev" / (subject + "_dev.csv");
  std::error_code problem;
  if (!fs::is_regular_file(dev, problem)) return questions;
  WINNOW_ASSIGN(const Questions examples, ReadMmluFile(dev.string(), subject));
  for (ChoiceQuestion& question : questions) question.examples = examples;
  return questions;
}

Result<Questions> ReadCsvFile(const std::string& path, uint64_t seed) {
  WINNOW_ASSIGN(const std::string text, ReadWhole(path));
  if (text.substr(0, text.find('\n')).find("Correct Answer") == std::string::npos) {
    return ReadMmlu(path);
  }
  WINNOW_ASSIGN(const std::vector<Row> rows, ReadCsv(path, true));
  return ReadGpqa(rows, seed);
}

Result<Questions> ReadQuality(const Row& row, size_t number) {
  WINNOW_ASSIGN(const std::string article, row.Text("article"));
  WINNOW_ASSIGN(const std::vector<Row> items, row.Rows("questions"));
  Questions questions;
  for (const Row& item : items) {
    if (!item.Has("gold_label")) continue;  // the test set has no answers
    ChoiceQuestion& question = questions.emplace_back();
    question.id = "quality/" + std::to_string(number) + "/" + std::to_string(questions.size() - 1);
    question.group = "quality";
    question.document = article;
    WINNOW_ASSIGN(question.question, item.Text("question"));
    WINNOW_ASSIGN(question.options, item.Texts("options"));
    WINNOW_ASSIGN(const int64_t label, item.Number("gold_label"));
    if (label < 1 || label > static_cast<int64_t>(question.options.size())) {
      return item.FormatError("gold_label", "the number of an option, from 1");
    }
    question.right = static_cast<size_t>(label - 1);
  }
  return questions;
}

Result<Questions> ReadOpenBook(const Row& row, size_t number) {
  WINNOW_ASSIGN(const Row stem, row.Object("question"));
  WINNOW_ASSIGN(const std::vector<Row> choices, stem.Rows("choices"));
  ChoiceQuestion question;
  question.id = "openbookqa/" + std::to_string(number);
  question.group = "openbookqa";
  WINNOW_ASSIGN(question.question, stem.Text("stem"));
  for (const Row& choice : choices) {
    WINNOW_ASSIGN(std::string option, choice.Text("text"));
    question.options.push_back(std::move(option));
  }
  WINNOW_ASSIGN(question.right, LetterIndex(row, "answerKey", question.options.size()));
  return Questions{std::move(question)};
}

Result<Questions> ReadJsonLinesFile(const std::string& path) {
  WINNOW_ASSIGN(const std::vector<Row> rows, ReadJsonLines(path));
  Questions questions;
  for (size_t i = 0; i < rows.size(); ++i) {
    if (!rows[i].Has("article") && !rows[i].Has("answerKey")) {
      return Error{rows[i].where() + ": neither QuALITY (article) nor OpenBookQA (answerKey)"};
    }
    WINNOW_ASSIGN(Questions found,
                  (rows[i].Has("article") ? ReadQuality : ReadOpenBook)(rows[i], i));
    std::move(found.begin(), found.end(), std::back_inserter(questions));
  }
  return questions;
}

Result<Questions> ReadReadyPrompts(const std::string& path) {
  WINNOW_ASSIGN(const std::vector<Row> rows, ReadJsonList(path, "samples"));
  Questions questions;
  for (const Row& row : rows) {
    ChoiceQuestion& question = questions.emplace_back();
    question.group = row.TextOrEmpty("topic");
    if (question.group.empty()) question.group = fs::path(path).stem().string();
    question.id = fs::path(path).stem().string() + "/" + std::to_string(questions.size() - 1);
    WINNOW_ASSIGN(question.ready_prompt, row.Text("prompt"));
    WINNOW_ASSIGN(const int64_t label, row.Number("input_label"));
    question.options = {"A", "B", "C", "D"};
    if (label < 0 || label >= 4)
      return row.FormatError("input_label", "the number of an option, from 0");
    question.right = static_cast<size_t>(label);
  }
  return questions;
}

}  // namespace

Result<std::vector<ChoiceQuestion>> ReadChoiceQuestions(const std::string& data, uint64_t seed) {
  std::error_code problem;
  const bool is_mmlu = fs::is_directory(fs::path(data) / "test", problem);
  const std::string files = is_mmlu ? (fs::path(data) / "test").string() : data;
  Questions questions;
  for (const char* ending : {".csv", ".jsonl", ".json"}) {
    WINNOW_ASSIGN(const std::vector<std::string> paths, ListFiles(files, ending));
    for (const std::string& path : paths) {
      if (!path.ends_with(ending)) continue;  // `data` is a file of another format
      Result<Questions> found = Questions();
      if (std::string_view(ending) == ".csv") found = ReadCsvFile(path, seed);
      if (std::string_view(ending) == ".jsonl") found = ReadJsonLinesFile(path);
      if (std::string_view(ending) == ".json") found = ReadReadyPrompts(path);
      if (!found) return found.error();
      std::move(found->begin(), found->end(), std::back_inserter(questions));
    }
  }
  if (questions.empty()) return Missing(data, kMultipleChoiceData);
  return questions;
}

}  // namespace winnow::eval
