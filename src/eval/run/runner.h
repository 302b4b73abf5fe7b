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

// A method, budget and cache types to evaluate.
struct Variant {
  std::string method;       // as given: "snapkv:window=16", or "full"
  std::string budget;       // "ratio 0.25", "size 512", "memory 1048576"; "" for none
  std::string cache_types;  // "f16", or "q8_0/q4_0" if keys and values differ
  runtime::SessionOptions options = {};
  std::string configuration = {};  // NormalizeConfiguration(method)
  // Above 0: the budget is chosen for every prompt so that the cache takes this share of the full
  // cache's bytes (equal_bytes.h).
  double equal_bytes = 0;

  std::string Name() const;  // "snapkv ratio 0.25 q8_0"; no type if it is f16
};

struct EvalOptions {
  ResultsFile* results = nullptr;  // known results, and where new ones are written; null: none
  report::Record about;            // model and machine, added to every result written
  std::string version, model_hash;
  std::string build;  // the version with its commit; tells results of other builds apart
  // Called often with the share done of the results still to compute. False stops.
  std::function<bool(double done)> keep_going;
};

// A sample without its workload, with its results.
struct EvaluatedSample {
  std::string id, group;
  report::Record labels;
  std::optional<int64_t> number = std::nullopt;
  std::vector<std::optional<SampleResult>> results;  // [variant]; none: stopped before it ran
};

struct EvalResults {
  const Task* task = nullptr;
  std::vector<Variant> variants;  // the first is the baseline
  std::vector<EvaluatedSample> samples;
  report::Record about;
  int64_t n_known = 0;            // results that were in the file before
  int64_t n_of_other_builds = 0;  // of these
  std::string other_build = {};   // one of them
  bool stopped = false;
};

// Runs every sample under every variant, sample by sample, so that a run that stops early has
// complete comparisons. A failure in one sample is recorded as its result; errors are those of the
// results file.
Result<EvalResults> Evaluate(runtime::Engine& engine, const Task& task,
                             const std::vector<Sample>& samples,
                             const std::vector<Variant>& variants, const EvalOptions& options);

}  // namespace winnow::eval
