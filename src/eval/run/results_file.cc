#include "eval/run/results_file.h"

#include <charconv>
#include <cmath>
#include <filesystem>
#include <utility>

#include "eval/tasks/data.h"
#include "report/parse_json.h"

namespace winnow::eval {
namespace {

std::string Hex(uint64_t value) {
  char digits[16];
  const auto end = std::to_chars(digits, digits + sizeof(digits), value, 16).ptr;
  return {digits, end};
}

Result<uint64_t> ParseHex(const std::string& text) {
  uint64_t value = 0;
  const auto [stop, problem] = std::from_chars(text.data(), text.data() + text.size(), value, 16);
  if (problem != std::errc() || stop != text.data() + text.size()) {
    return Error{"not a hexadecimal number: '" + text + "'"};
  }
  return value;
}

// A field's value as a number. Error: it is not a number.
Result<double> NumberFrom(const Row& row, const std::string& name) {
  WINNOW_ASSIGN(const report::Value* value, row.Field(name));
  const auto number = report::NumberIn(*value);
  if (!number) return row.FormatError(name, "a number, or \"nan\", \"inf\" or \"-inf\"");
  return *number;
}

// Checks that all fields that are averaged hold numbers, whatever program wrote the line.
Result<void> CheckNumbers(const Row& row) {
  for (const char* name : {"scores", "weights"}) {
    if (!row.Has(name)) continue;
    WINNOW_ASSIGN(const Row numbers, row.Object(name));
    for (const report::Field& field : numbers.record().fields) {
      WINNOW_ASSIGN(const double value, NumberFrom(numbers, field.name));
      const bool is_weight = value >= 0 && std::isfinite(value);
      if (name == std::string_view("weights") && !is_weight) {
        return numbers.FormatError(field.name, "a weight of 0 or more");
      }
    }
  }
  if (row.Has("kept")) WINNOW_TRY(NumberFrom(row, "kept"));
  return {};
}

// The fields of the key that precede the result; EndRecord adds those that follow it.
report::Record BeginRecord(const ResultKey& key) {
  return {{"task", key.task},     {"sample", key.sample},
          {"method", key.method}, {"configuration", key.configuration},
          {"budget", key.budget}, {"cache_types", key.cache_types}};
}

void EndRecord(const ResultKey& key, report::Record& record) {
  record.Add("fingerprint", Hex(key.fingerprint));
  record.Add("model_hash", key.model_hash);
  record.Add("version", key.version);
}

}  // namespace

report::Record RecordOfPoint(const ResultKey& key, const report::Record& point) {
  report::Record record = BeginRecord(key);
  record.Add("point", point);
  EndRecord(key, record);
  return record;
}

report::Record ToRecord(const ResultKey& key, const SampleResult& result) {
  report::Record record = BeginRecord(key);
  const Outcome& outcome = result.outcome;
  if (!result.problem.empty()) {
    record.Add("problem", result.problem);
  } else {
    report::Record scores;
    report::Record weights;
    for (const Score& score : outcome.scores) {
      scores.Add(score.name, score.value);
      if (score.weight != 1) weights.Add(score.name, score.weight);
    }
    record.Add("scores", std::move(scores));
    if (!weights.fields.empty()) record.Add("weights", std::move(weights));
    record.Add("cache_bytes", outcome.cache_bytes);
    record.Add("cache_bytes_with_lists", outcome.cache_bytes_with_lists);
    record.Add("cache_bytes_full_f16", outcome.cache_bytes_full_f16);
    record.Add("kept", outcome.kept);
    record.Add("details", outcome.details);
  }
  EndRecord(key, record);
  return record;
}

Result<std::pair<ResultKey, SampleResult>> ParseResult(const report::Record& record,
                                                       const std::string& where) {
  const Row row(record, where);
  ResultKey key;
  WINNOW_ASSIGN(key.task, row.Text("task"));
  WINNOW_ASSIGN(key.sample, row.Text("sample"));
  WINNOW_ASSIGN(key.method, row.Text("method"));
  WINNOW_ASSIGN(key.configuration, row.Text("configuration"));
  WINNOW_ASSIGN(key.budget, row.Text("budget"));
  WINNOW_ASSIGN(key.cache_types, row.Text("cache_types"));
  WINNOW_ASSIGN(key.model_hash, row.Text("model_hash"));
  WINNOW_ASSIGN(key.version, row.Text("version"));
  WINNOW_ASSIGN(const std::string fingerprint, row.Text("fingerprint"));
  WINNOW_ASSIGN(key.fingerprint, ParseHex(fingerprint));
  SampleResult result;
  result.build = row.TextOrEmpty("winnow");
  if (row.Has("problem")) {
    WINNOW_ASSIGN(result.problem, row.Text("problem"));
    return std::pair{std::move(key), std::move(result)};
  }
  WINNOW_ASSIGN(const Row scores, row.Object("scores"));
  for (const report::Field& field : scores.record().fields) {
    WINNOW_ASSIGN(const double value, NumberFrom(scores, field.name));
    result.outcome.scores.push_back({field.name, value, 1});
  }
  if (row.Has("weights")) {
    WINNOW_ASSIGN(const Row weights, row.Object("weights"));
    for (Score& score : result.outcome.scores) {
      if (!weights.Has(score.name)) continue;
      WINNOW_ASSIGN(score.weight, NumberFrom(weights, score.name));
    }
  }
  WINNOW_ASSIGN(result.outcome.cache_bytes, row.Number("cache_bytes"));
  WINNOW_ASSIGN(result.outcome.cache_bytes_with_lists, row.Number("cache_bytes_with_lists"));
  WINNOW_ASSIGN(result.outcome.cache_bytes_full_f16, row.Number("cache_bytes_full_f16"));
  WINNOW_ASSIGN(result.outcome.kept, NumberFrom(row, "kept"));
  WINNOW_ASSIGN(const Row details, row.Object("details"));
  result.outcome.details = details.record();
  return std::pair{std::move(key), std::move(result)};
}

Result<ResultsFile> ResultsFile::Open(const std::string& path) {
  ResultsFile results;
  results.path_ = path;
  bool ends_in_line = true;
  std::error_code problem;
  if (std::filesystem::exists(path, problem)) {
    std::ifstream file(path, std::ios::binary);
    if (!file) return Error{path + ": cannot be read"};
    std::string line;
    for (int64_t n = 1; std::getline(file, line); ++n) {
      ends_in_line = !file.eof();
      if (line.empty()) continue;
      const auto value = report::ParseJson(line);
      const auto* record = value ? std::get_if<report::Record>(&value->data) : nullptr;
      if (record != nullptr && record->Find("point") != nullptr) continue;
      if (record == nullptr) {
        ++results.n_skipped_lines_;
        continue;
      }
      const std::string where = path + ":" + std::to_string(n);
      if (const auto numbers = CheckNumbers(Row(*record, where)); !numbers) {
        return Error{numbers.error().message + "; delete the line to compute its sample again"};
      }
      auto known = ParseResult(*record, where);
      if (known) {
        results.known_.insert_or_assign(std::move(known->first), std::move(known->second));
      } else {
        ++results.n_skipped_lines_;
      }
    }
  }
  results.file_.open(path, std::ios::binary | std::ios::app);
  if (!ends_in_line) results.file_ << '\n';
  if (!results.file_) return Error{path + ": cannot be written"};
  return results;
}

const SampleResult* ResultsFile::Find(const ResultKey& key) const {
  const auto found = known_.find(key);
  return found == known_.end() ? nullptr : &found->second;
}

Result<void> ResultsFile::Append(const ResultKey& key, const SampleResult& result,
                                 const report::Record& about) {
  report::Record record = ToRecord(key, result);
  for (const report::Field& field : about.fields) record.Add(field.name, field.value);
  return Write(record);
}

Result<void> ResultsFile::AppendPoint(const ResultKey& key, const report::Record& point) {
  return Write(RecordOfPoint(key, point));
}

Result<void> ResultsFile::Write(const report::Record& record) {
  file_ << report::ToJson(record) + "\n" << std::flush;
  if (!file_) return Error{path_ + ": writing failed (disk full?)"};
  return {};
}

}  // namespace winnow::eval
