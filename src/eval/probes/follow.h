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
// The part of a task's progress that one run covers.
struct ProgressRange {
  double done_before = 0;
  double share = 1;
};
// nullopt: stopped. Errors: those of the session, prefixed with the candidate's name.
Result<std::optional<Followed>> Follow(const ProbeTask& task, const Candidate& candidate,
                                       const std::vector<runtime::TokenId>& sample,
                                       int64_t n_prompt, ProgressRange portion);

}  // namespace winnow::eval
