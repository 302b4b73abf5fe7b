#pragma once

#include <map>
#include <memory>
#include <string>

#include "runtime/engine.h"
#include "sweep_case.h"

namespace winnow::sweep {

struct Counts {
  int n_cases = 0;
  int n_prompts = 0;
  int n_refused = 0;  // sessions and prompts, with a reason
  int n_tokens = 0;
};

// Runs cases, and keeps the tiny models they share.
class Runner {
 public:
  // What does not hold; empty: everything does. What the invariants of the program itself find
  // (runtime/invariants.h) ends the process.
  std::string Run(const Case& c);
  const Counts& counts() const { return counts_; }

 private:
  runtime::Engine& FindEngine(const Case& c, int n_threads);
  std::map<std::string, std::unique_ptr<runtime::Engine>> engines_;
  Counts counts_;
};

}  // namespace winnow::sweep
