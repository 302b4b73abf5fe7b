#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "eval/run/results_file.h"
#include "eval/tasks/task.h"

namespace winnow::eval {

// A way of keeping the cache that is put to the test.
struct Variant {
  std::string method;       // as it was asked for: "snapkv:window=16", or "full"
  std::string budget;       // "ratio 0.25", "size 512", "memory 1048576"; "" for none
  std::string cache_types;  // "f16", or "q8_0/q4_0" where keys and values differ
  runtime::SessionOptions options = {};
  std::string configuration = {};  // NormalizeConfiguration(method)
  // Above 0: the budget is chosen for every prompt so that the cache takes this share of the full
  // one's bytes (equal_bytes.h).
  double equal_bytes = 0;

  std::string Name() const;  // "snapkv ratio 0.25 q8_0", the type only where it is not f16
};

struct EvalOptions {
  ResultsFile* results =
      nullptr;           // what is known already and where the rest is written; null: none
  report::Record about;  // model and machine, in front of every result written
  std::string version, model_hash;
  std::string build;  // the version to the commit: results of others are told from its own
  // Called often: the share done of what is to be run. False stops.
  std::function<bool(double done)> keep_going;
};

// A sample without its work, and what came of it.
struct EvaluatedSample {
  std::string id, group;
  report::Record labels;
  std::optional<int64_t> number = std::nullopt;
  std::vector<std::optional<SampleResult>> results;  // [variant]; none: stopped before
};

struct EvalResults {
  const Task* task = nullptr;
  std::vector<Variant> variants;  // the first is what the others are held against
  std::vector<EvaluatedSample> samples;
  report::Record about;
  int64_t n_known = 0;            // results that were in the file before
  int64_t n_of_other_builds = 0;  // of these
  std::string other_build = {};   // one of them
  bool stopped = false;
};

// Every sample under every variant: sample by sample, so that a run that ends early has compared
// what it has. What goes wrong with one sample is its result; errors are those of the results file.
Result<EvalResults> Evaluate(runtime::Engine& engine, const Task& task,
                             const std::vector<Sample>& samples,
                             const std::vector<Variant>& variants, const EvalOptions& options);

}  // namespace winnow::eval
