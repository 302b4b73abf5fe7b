#include "bench_results.h"

#include <algorithm>
#include <cmath>
#include <ctime>
#include <utility>

#include "base/fixed.h"
#include "base/machine.h"
#include "console.h"
#include "gguf/summary.h"
#include "load.h"
#include "table.h"
#include "winnow/version.h"

namespace winnow::apps {
namespace {

using report::Record;

struct Spread {
  double mean = 0;
  double deviation = 0;  // sample standard deviation
};

template <typename T>
Spread MeasureSpread(const std::vector<T>& values) {
  Spread spread;
  const double n = static_cast<double>(values.size());
  for (const T value : values) spread.mean += static_cast<double>(value) / n;
  if (values.size() < 2) return spread;
  double squares = 0;
  for (const T value : values) squares += std::pow(static_cast<double>(value) - spread.mean, 2);
  spread.deviation = std::sqrt(squares / (n - 1));
  return spread;
}

double PerSecond(int64_t n, int64_t ns) {
  return 1e9 * static_cast<double>(n) / static_cast<double>(ns);
}

std::string Now() {
  const std::time_t now = std::time(nullptr);
  char text[32];
  std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", std::gmtime(&now));
  return text;
}

// The configuration, with llama-bench's field names; n_sequences and memory_bytes (planned) are
// winnow's own.
Record PlanRecord(runtime::Engine& engine, const Setting& setting, const BenchTest& test,
                  const runtime::BatchMemory& memory) {
  return {{"build_version", WINNOW_VERSION},
          {"cpu_info", CpuName()},
          {"backends", "CPU"},
          {"cpu_target", engine.backend().target()},
          {"deterministic", engine.backend().batch_invariant()},
          {"model_filename", setting.model},
          {"model_type", DescribeEngine(engine)},
          {"model_size", runtime::ModelBytes(engine)},
          {"model_n_params", engine.model().n_parameters()},
          {"n_batch", setting.batch},
          {"n_ubatch", setting.micro_batch},
          {"n_threads", engine.pool().n_threads()},
          {"type_k", setting.key_type},
          {"type_v", setting.value_type},
          {"kv_method", setting.method},
          {"kv_budget", setting.budget.name},
          {"n_prompt", test.n_prompt},
          {"n_gen", test.n_generate},
          {"n_depth", test.depth},
          {"n_sequences", test.n_sequences},
          {"memory_bytes", memory.total()}};
}

// The measurements; kv_kept, the kv_bytes fields, pp_ts, tg_ts and step_ms are winnow's own.
void AddMeasured(const BenchTest& test, const std::vector<BenchSample>& samples,
                 const BenchCaches& caches, Record& record) {
  std::vector<int64_t> samples_ns;
  std::vector<double> samples_ts, prompt_ts, generate_ts, step_ms;
  int64_t longest_step_ns = 0;
  for (const BenchSample& sample : samples) {
    samples_ns.push_back(sample.ns());
    samples_ts.push_back(PerSecond(test.n_tokens(), sample.ns()));
    prompt_ts.push_back(PerSecond(test.n_sequences * test.n_prompt, sample.prefill_ns));
    generate_ts.push_back(PerSecond(test.n_sequences * test.n_generate, sample.decode_ns));
    step_ms.push_back(static_cast<double>(sample.decode_ns) / 1e6 /
                      static_cast<double>(test.n_generate));
    longest_step_ns = std::max(longest_step_ns, sample.longest_step_ns);
  }
  // The mean for a phase that the test has; otherwise empty.
  const auto mean = [](bool has, const std::vector<double>& values) {
    return has ? report::Value(MeasureSpread(values).mean) : report::Value();
  };
  const bool prompts = test.n_prompt > 0, generates = test.n_generate > 0;
  const Spread ns = MeasureSpread(samples_ns);
  const Spread ts = MeasureSpread(samples_ts);
  record.Add("kv_kept", report::CountOrMean(caches.kept));
  record.Add("kv_bytes", caches.bytes);
  record.Add("kv_bytes_with_lists", caches.bytes_with_lists);
  record.Add("kv_bytes_full_f16", caches.bytes_full_f16);
  record.Add("test_time", Now());
  record.Add("avg_ns", static_cast<int64_t>(ns.mean));
  record.Add("stddev_ns", static_cast<int64_t>(ns.deviation));
  record.Add("avg_ts", ts.mean);
  record.Add("stddev_ts", ts.deviation);
  record.Add("pp_ts", mean(prompts, prompt_ts));
  record.Add("tg_ts", mean(generates, generate_ts));
  record.Add("step_ms", mean(generates, step_ms));
  record.Add("step_ms_max", generates ? report::Value(static_cast<double>(longest_step_ns) / 1e6)
                                      : report::Value());
  record.Add("samples_ns", report::MakeList(samples_ns));
  record.Add("samples_ts", report::MakeList(samples_ts));
}

// The result as a row of llama-bench's table; shows settings that are not the default.
Record TableRow(const BenchFlags& flags, runtime::Engine& engine, const Setting& setting,
                const BenchTest& test, const Record& result) {
  const auto shows = [](const auto& values, const auto& usual) {
    return values.size() > 1 || values[0] != usual;
  };
  const auto number = [&](const char* name) { return std::get<double>(result.Find(name)->data); };
  const auto integer = [&](const char* name) { return std::get<int64_t>(result.Find(name)->data); };
  Record row = {{"model", DescribeEngine(engine)},
                {"size", HumanBytes(integer("model_size"))},
                {"params", HumanCount(integer("model_n_params"))},
                {"backend", "CPU"},
                {"threads", integer("n_threads")}};
  if (shows(flags.batches, int64_t{2048})) row.Add("n_batch", setting.batch);
  if (shows(flags.micro_batches, int64_t{512})) row.Add("n_ubatch", setting.micro_batch);
  if (shows(flags.key_types, std::string("f16"))) row.Add("type_k", setting.key_type);
  if (shows(flags.value_types, std::string("f16"))) row.Add("type_v", setting.value_type);
  if (shows(flags.methods, std::string("full"))) {
    row.Add("kv", setting.method);
    if (ListBudgets(flags.budgets, {}).size() > 1) row.Add("budget", setting.budget.name);
    if (result.Find("kv_bytes")) {
      row.Add("cache", HumanBytes(integer("kv_bytes")));
      row.Add("with lists", HumanBytes(integer("kv_bytes_with_lists")));
      const double share = static_cast<double>(integer("kv_bytes_with_lists")) /
                           static_cast<double>(integer("kv_bytes_full_f16"));
      row.Add("of full f16", Fixed(100 * share, 1) + " %");
    }
  }
  row.Add("test", test.Name());
  if (flags.memory_limit > 0 || flags.dry_run) {
    row.Add("memory", HumanBytes(integer("memory_bytes")));
  }
  if (flags.batched()) row.Add("B", test.n_sequences);
  if (flags.dry_run) return row;
  row.Add("t/s", Fixed(number("avg_ts"), 2) + " ± " + Fixed(number("stddev_ts"), 2));
  if (flags.batched()) {
    const bool generates = test.n_generate > 0;
    row.Add("tg t/s", generates ? Fixed(number("tg_ts"), 2) : "");
    row.Add("ms/step", generates ? Fixed(number("step_ms"), 2) : "");
  }
  return row;
}

}  // namespace

void BenchOutput::Add(runtime::Engine& engine, const Setting& setting, const BenchTest& test,
                      const runtime::BatchMemory& memory, const std::vector<BenchSample>& samples,
                      const BenchCaches& caches) {
  Record result = PlanRecord(engine, setting, test, memory);
  if (!flags_.dry_run) AddMeasured(test, samples, caches, result);
  rows_.push_back(TableRow(flags_, engine, setting, test, result));
  results_.push_back(std::move(result));
  if (flags_.output == "jsonl") {
    Print(report::ToJsonLines(std::span(&results_.back(), 1)));
    Flush();
  }
}

void BenchOutput::Finish() const {
  if (flags_.output == "md") PrintTable(rows_, 1);
  if (flags_.output == "csv") Print(report::ToCsv(results_));
  if (flags_.output == "json") {
    report::List list(results_.begin(), results_.end());
    Print(report::ToJson(list, 2) + "\n");
  }
}

}  // namespace winnow::apps
