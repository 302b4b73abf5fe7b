#pragma once

#include <memory>
#include <string>
#include <utility>

#include "base/output_file.h"
#include "base/result.h"
#include "cache/plan.h"
#include "runtime/budget/compressor.h"

namespace winnow::apps {

// Writes plans as JSON lines, one per plan:
//   {"step": tokens seen, "phase": "prefill" | "decode", "layer": 0,
//    "heads": [{"kept": 1024, "evicted": [text positions],
//               "merged": [{"from": [positions], "into": position,
//                           "key_weights": [..], "value_weights": [..]}],
//               "shared": [{"entry": position, "with": position, "factor": 1.0}]}]}
// "merged" and "shared" are omitted if empty. The position of a row that several entries share is
// that of its oldest entry.
class PlanTrace {
 public:
  // Error: the file cannot be written.
  static Result<std::unique_ptr<PlanTrace>> Create(const std::string& path);
  void Write(const cache::Plan& plan, const runtime::PlanContext& context);
  // Completes the file, which does not exist before. Error: it cannot be written.
  Result<void> Finish();

 private:
  explicit PlanTrace(OutputFile file) : file_(std::move(file)) {}

  OutputFile file_;
  Result<void> written_;
};

}  // namespace winnow::apps
