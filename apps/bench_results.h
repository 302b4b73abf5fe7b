#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "bench_run.h"
#include "method_list.h"
#include "options.h"
#include "report/record.h"
#include "runtime/session/batch_memory.h"

// Flags and output of `bench`.
namespace winnow::apps {

struct BenchFlags {
  std::vector<std::string> models = {kBundled};
  std::vector<int64_t> prompts = {512}, generates = {128}, depths = {0}, batches = {2048},
                       micro_batches = {512}, threads = {-1};
  std::vector<std::string> pairs;  // "PP,TG"
  std::vector<int64_t> sequences;  // sequences per batch; empty: one sequence, not run as a batch
  int64_t memory_limit = 0;        // bytes; 0: none
  std::vector<std::string> key_types = {"f16"}, value_types = {"f16"}, methods = {"full"};
  int64_t repetitions = 5;
  std::string output = "md";
  std::string cpu_target;
  bool deterministic = false;
  bool warmup = true;
  bool dry_run = false;  // print the plan, measure nothing
  bool progress = false;
  ModelFlags log_flags;
  BudgetLists budgets;
  std::vector<std::string> notes;

  bool batched() const { return !sequences.empty() || memory_limit > 0; }
};

// One configuration: everything except the test.
struct Setting {
  std::string model;
  int64_t threads, batch, micro_batch;
  std::string key_type, value_type, method;
  NamedBudget budget = {};

  ModelFlags Flags(const BenchFlags& flags, int64_t context) const {
    ModelFlags model_flags = flags.log_flags;
    model_flags.model = model;
    model_flags.threads = static_cast<int>(std::clamp<int64_t>(threads, -2, 1 << 20));
    model_flags.context = context;
    model_flags.batch = batch;
    model_flags.micro_batch = micro_batch;
    model_flags.key_type = key_type;
    model_flags.value_type = value_type;
    model_flags.cpu_target = flags.cpu_target;
    model_flags.deterministic = flags.deterministic;
    model_flags.kv = budget.kv;
    model_flags.kv.method = method;
    return model_flags;
  }
};

// Collects results and prints them in the format wanted.
class BenchOutput {
 public:
  explicit BenchOutput(const BenchFlags& flags) : flags_(flags) {}

  // `memory`: the test's memory plan. In a dry run samples and caches are empty.
  void Add(runtime::Engine& engine, const Setting& setting, const BenchTest& test,
           const runtime::BatchMemory& memory, const std::vector<BenchSample>& samples,
           const BenchCaches& caches);
  void Finish() const;

 private:
  const BenchFlags& flags_;
  std::vector<report::Record> rows_;
  std::vector<report::Record> results_;
};

}  // namespace winnow::apps
