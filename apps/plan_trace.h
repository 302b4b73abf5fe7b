#pragma once

#include <memory>
#include <string>
#include <utility>

#include "base/output_file.h"
#include "base/result.h"
#include "cache/plan.h"
#include "runtime/budget/compressor.h"

namespace winnow::apps {

// Writes plans as JSON lines, one for each:
//   {"step": tokens seen, "phase": "prefill" | "decode", "layer": 0,
//    "heads": [{"kept": 1024, "evicted": [text positions],
//               "merged": [{"from": [positions], "into": position,
//                           "key_weights": [..], "value_weights": [..]}],
//               "shared": [{"entry": position, "with": position, "factor": 1.0}]}]}
// "merged" and "shared" are left out where empty. Of an entry that shares its row with others
// (EMS), the position is that of the oldest entry in the row.
class PlanTrace {
 public:
  // Error: the file cannot be written.
  static Result<std::unique_ptr<PlanTrace>> Create(const std::string& path);
  void Write(const cache::Plan& plan, const runtime::PlanContext& context);
  // The file is there from now on, and not before. Error: the disk.
  Result<void> Finish();

 private:
  explicit PlanTrace(OutputFile file) : file_(std::move(file)) {}

  OutputFile file_;
  Result<void> written_;
};

}  // namespace winnow::apps
