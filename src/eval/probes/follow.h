#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "eval/probes/kept_tracker.h"
#include "eval/probes/probe.h"

namespace winnow::eval {

// One sample under one method: the first n_prompt tokens as a prompt, the others as decode steps.
// The tracker is closed.
struct Followed {
  std::unique_ptr<KeptTracker> tracker;
  std::unique_ptr<runtime::Session> session;
};
// Nothing if stopped; `done_before` and `share` place this run within the task's progress.
struct ProgressRange {
  double done_before = 0;
  double share = 1;
};
Result<std::optional<Followed>> Follow(const ProbeTask& task, const Candidate& candidate,
                                       const std::vector<runtime::TokenId>& sample,
                                       int64_t n_prompt, ProgressRange portion);

}  // namespace winnow::eval
