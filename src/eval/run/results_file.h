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

// What makes a result the result of this and nothing else. Two runs that agree in all of it would
// find the same.
struct ResultKey {
  std::string version, model_hash, task, method, budget, cache_types, sample;
  std::string configuration;  // the method with all parameters: defaults may change
  uint64_t fingerprint = 0;   // of the work
  auto operator<=>(const ResultKey&) const = default;
};

// A sample's outcome under one method, or why there is none.
struct SampleResult {
  Outcome outcome = {};
  std::string problem = {};  // not empty: what kept it from running
  std::string build = {};    // of winnow, where it comes from a file: "0.1.0+e664c7b"
};

report::Record ToRecord(const ResultKey& key, const SampleResult& result);
// What is known of a result before it is there: "point" in the place of scores and details.
report::Record RecordOfPoint(const ResultKey& key, const report::Record& point);
// The inverse; `where` is the record's place, for messages. Errors: not such a record, a score that
// is no number.
Result<std::pair<ResultKey, SampleResult>> ParseResult(const report::Record& record,
                                                       const std::string& where);

// A file of results, one JSON object per line, added to as they come; what it already holds need
// not be run again. NaN and infinities stand in it as texts (report::ToJson). A line that a killed
// run left unfinished is skipped (and its sample runs again); results of other models, tasks and
// methods may stand in the same file, and points of results that were never finished.
class ResultsFile {
 public:
  // Reads what is there. Errors: cannot be read, cannot be written, a score that is no number
  // (its line is named).
  static Result<ResultsFile> Open(const std::string& path);

  const SampleResult* Find(const ResultKey& key) const;  // null: to be run
  // Written and flushed before it returns. `about` goes in front: model, machine. Error: the disk.
  Result<void> Append(const ResultKey& key, const SampleResult& result,
                      const report::Record& about);
  // The same for a point of a result that will come.
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
