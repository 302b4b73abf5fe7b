#pragma once

#include <cstdint>
#include <fstream>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "eval/run/workload.h"
#include "report/record.h"

namespace winnow::eval {

// Everything that a result depends on: runs with equal keys give equal results.
struct ResultKey {
  std::string version, model_hash, task, method, budget, cache_types, sample;
  std::string configuration;  // the method with all parameters, as defaults may change
  uint64_t fingerprint = 0;   // of the workload
  auto operator<=>(const ResultKey&) const = default;
};

// A sample's outcome under one method, or why there is none.
struct SampleResult {
  Outcome outcome = {};
  std::string problem = {};  // not empty: why it could not run
  std::string build = {};    // the winnow build, if the result comes from a file: "0.1.0+e664c7b"
};

report::Record ToRecord(const ResultKey& key, const SampleResult& result);
// An intermediate point of an unfinished result: "point" takes the place of scores and details.
report::Record RecordOfPoint(const ResultKey& key, const report::Record& point);
// The inverse of ToRecord; `where` locates the record in messages. Errors: not such a record, a
// score that is not a number.
Result<std::pair<ResultKey, SampleResult>> ParseResult(const report::Record& record,
                                                       const std::string& where);

// A file of results, one JSON object per line, appended as they come. Results that it already holds
// need not be computed again. NaN and infinities are stored as strings (report::ToJson). A line
// that a killed run left unfinished is skipped, and its sample runs again. The file may also hold
// results of other models, tasks and methods, and points of results that were never finished.
class ResultsFile {
 public:
  // Reads the results that are there. Errors: cannot be read, cannot be written, a score that is
  // not a number (names the line).
  static Result<ResultsFile> Open(const std::string& path);

  const SampleResult* Find(const ResultKey& key) const;  // null: to be run
  // Writes and flushes before it returns. `about` (model, machine) follows the other fields. Error:
  // the disk.
  Result<void> Append(const ResultKey& key, const SampleResult& result,
                      const report::Record& about);
  // The same for a point of a result still to come.
  Result<void> AppendPoint(const ResultKey& key, const report::Record& point);
  int64_t n_skipped_lines() const { return n_skipped_lines_; }

 private:
  Result<void> Write(const report::Record& record);

  std::string path_;
  std::ofstream file_;
  std::map<ResultKey, SampleResult> known_;
  int64_t n_skipped_lines_ = 0;
};

}  // namespace winnow::eval
