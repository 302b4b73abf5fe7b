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
  int n_refused = 0;  // sessions and prompts refused with an error
  int n_tokens = 0;
};

// Runs cases. Keeps the tiny models that cases share.
class Runner {
 public:
  // Returns what is violated; empty: nothing. A violation found by the program's own checks
  // (runtime/invariants.h) ends the process.
  std::string Run(const Case& c);
  const Counts& counts() const { return counts_; }

 private:
  runtime::Engine& FindEngine(const Case& c, int n_threads);
  std::map<std::string, std::unique_ptr<runtime::Engine>> engines_;
  Counts counts_;
};

}  // namespace winnow::sweep
