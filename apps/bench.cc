#include <algorithm>
#include <chrono>
#include <cmath>
#include <ctime>
#include <optional>

#include "base/rng.h"
#include "commands.h"
#include "gguf/summary.h"
#include "interrupt.h"
#include "options.h"
#include "ranges.h"
#include "report/machine.h"
#include "report/record.h"
#include "winnow/version.h"

namespace winnow::apps {
namespace {

using report::Record;

// What is measured: a prompt, a generation, or one after the other, in a cache that holds `depth`
// tokens already.
struct Test {
  int64_t n_prompt = 0;
  int64_t n_generate = 0;
  int64_t depth = 0;

  int64_t n_tokens() const { return n_prompt + n_generate; }
  std::string Name() const {
    std::string name;
    if (n_prompt > 0) name = "pp" + std::to_string(n_prompt);
    if (n_generate > 0) name += (name.empty() ? "tg" : "+tg") + std::to_string(n_generate);
    return name + (depth > 0 ? " @ d" + std::to_string(depth) : "");
  }
};

struct BenchFlags {
  std::vector<std::string> models;
  std::vector<int64_t> prompts = {512}, generates = {128}, depths = {0}, batches = {2048},
                       micro_batches = {512}, threads = {-1};
  std::vector<std::string> pairs;  // "PP,TG"
  std::vector<std::string> key_types = {"f16"}, value_types = {"f16"}, methods = {"full"};
  int64_t repetitions = 5;
  std::string output = "md";
  std::string cpu_target;
  bool warmup = true;
  bool progress = false;
  ModelFlags log_flags;
  std::vector<std::string> notes;
};

// A flag whose value is a list; the first time it is given it replaces the default.
template <typename T, typename Parse>
void AddList(FlagTable& table, FlagTable::Names names, const char* value_name, const char* help,
             std::vector<T>* target, Parse parse) {
  std::string shown;
  for (const T& value : *target) {
    if constexpr (std::is_same_v<T, std::string>) {
      shown += (shown.empty() ? "" : ",") + value;
    } else {
      shown += (shown.empty() ? "" : ",") + std::to_string(value);
    }
  }
  table.Add({std::move(names),
             value_name,
             help,
             shown,
             {},
             false,
             [target, parse, given = false](std::string_view text) mutable -> Result<void> {
               WINNOW_ASSIGN(const std::vector<T> values, parse(text));
               if (!std::exchange(given, true)) target->clear();
               target->insert(target->end(), values.begin(), values.end());
               return {};
             }});
}

FlagTable MakeTable(BenchFlags& flags) {
  FlagTable table(
      "bench", "-m FILE [flags]",
      "Measures how fast prompts are read (pp) and tokens generated (tg), as llama-bench "
      "does: tokenising and sampling not included. LISTs are 1,2,3 or ranges: 1-4, "
      "0-1024+256, 1-16*2; all combinations are run.");
  const auto words = [](std::string_view text) { return ParseWords(text); };
  const auto numbers = [](std::string_view text) { return ParseRanges(text); };
  table.Group("What is measured");
  AddList(table, {"-m", "--model"}, "LIST", "models (GGUF)", &flags.models, words);
  AddList(table, {"-p", "--n-prompt"}, "LIST", "tokens of a prompt; 0: none", &flags.prompts,
          numbers);
  AddList(table, {"-n", "--n-gen"}, "LIST", "tokens generated; 0: none", &flags.generates, numbers);
  table.Add({"-pg"}, "PP,TG", "a prompt and then a generation; can be repeated", &flags.pairs);
  AddList(table, {"-d", "--n-depth"}, "LIST", "tokens in the cache before each test", &flags.depths,
          numbers);
  table.Add({"-r", "--repetitions"}, "N", "how often each test is repeated", &flags.repetitions);
  table.Switch({"--no-warmup"}, "no run before the first repetition", &flags.warmup, false);
  table.Group("How");
  AddList(table, {"-t", "--threads"}, "LIST", "threads; -1: one for each core", &flags.threads,
          numbers);
  AddList(table, {"-ctk", "--cache-type-k"}, "LIST", "how keys are stored", &flags.key_types,
          words);
  AddList(table, {"-ctv", "--cache-type-v"}, "LIST", "how values are stored", &flags.value_types,
          words);
  AddList(table, {"-b", "--batch-size"}, "LIST", "upper bound of -ub", &flags.batches, numbers);
  AddList(table, {"-ub", "--ubatch-size"}, "LIST",
          "tokens of a prompt computed at a time in a layer", &flags.micro_batches, numbers);
  table.Add({"--cpu-target"}, "NAME", "instruction set to use; empty: the best there is",
            &flags.cpu_target);
  AddKvFlags(table, flags.log_flags.kv, MethodFlag::kOwn);
  AddList(
      table, {"--kv-method"}, "LIST",
      "how the cache is compressed, separated by commas; a comma before PARAMETER=VALUE goes on "
      "with the same method",
      &flags.methods, [](std::string_view text) { return SplitMethods(text); });
  table.Group("Output");
  table.Add({"-o", "--output"}, "FORMAT", "md, json, jsonl or csv", &flags.output);
  table.Switch({"--progress"}, "say on stderr which test is running", &flags.progress);
  table.Switch({"-v", "--verbose"}, "say on stderr what was loaded", &flags.log_flags.verbose);
  table.Add({{"-h", "--help"}, "", "this text", "", {}, false, {}});
  AddForeignFlags(table, flags.notes);
  return table;
}

Result<std::vector<Test>> TestsOf(const BenchFlags& flags) {
  std::vector<Test> tests;
  const auto add = [&](int64_t n_prompt, int64_t n_generate, int64_t depth) {
    if (n_prompt + n_generate > 0) tests.push_back({n_prompt, n_generate, depth});
  };
  for (const int64_t depth : flags.depths) {
    for (const int64_t n : flags.prompts) add(n, 0, depth);
    for (const int64_t n : flags.generates) add(0, n, depth);
    for (const std::string& pair : flags.pairs) {
      const auto values = ParseRanges(pair);
      if (!values || values->size() != 2) {
        return Error{"flag -pg: '" + pair + "' is not PP,TG, such as 512,128"};
      }
      add((*values)[0], (*values)[1], depth);
    }
  }
  for (const Test& test : tests) {
    if (test.n_prompt < 0 || test.n_generate < 0 || test.depth < 0) {
      return Error{"numbers of tokens cannot be negative"};
    }
  }
  if (tests.empty()) return Error{"nothing to measure: -p, -n and -pg are all 0"};
  return tests;
}

// One way of running: everything but the test.
struct Setting {
  std::string model;
  int64_t threads, batch, micro_batch;
  std::string key_type, value_type, method;

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
    model_flags.kv.method = method;
    if (method == "full" && model_flags.kv.decode.empty()) {
      // Among other methods, the full cache is what they are compared with.
      model_flags.kv.size = 0;
      model_flags.kv.ratio = 0;
    }
    return model_flags;
  }
};

std::vector<Setting> SettingsOf(const BenchFlags& flags) {
  std::vector<Setting> settings;
  for (const std::string& model : flags.models)
    for (const int64_t threads : flags.threads)
      for (const int64_t batch : flags.batches)
        for (const int64_t micro_batch : flags.micro_batches)
          for (const std::string& key_type : flags.key_types)
            for (const std::string& value_type : flags.value_types)
              for (const std::string& method : flags.methods)
                settings.push_back(
                    {model, threads, batch, micro_batch, key_type, value_type, method});
  return settings;
}

// The cache at the end of a repetition.
struct CacheState {
  double kept = 0;  // entries per KV head, the mean over layers and heads
  int64_t bytes = 0;
};

// Runs tests on one session. The cache is filled to a test's depth once and cut back to it before
// each repetition; where a method evicts, each repetition runs on a copy instead.
class Runner {
 public:
  Runner(runtime::Session& session, const std::atomic<bool>& interrupted)
      : session_(session),
        interrupted_(interrupted),
        vocabulary_(session.engine().model().hyperparameters().vocabulary) {}

  // Nanoseconds of each repetition; fewer than wanted if interrupted.
  Result<std::vector<int64_t>> Measure(const Test& test, int64_t repetitions, bool warmup) {
    if (session_.n_tokens() > test.depth) session_.Truncate(test.depth);
    if (session_.n_tokens() < test.depth) {
      if (evicts()) session_.Reset();
      WINNOW_TRY(session_.Prefill(RandomTokens(test.depth - session_.n_tokens())));
    }
    if (warmup)
      WINNOW_TRY(Once({test.n_prompt, std::min<int64_t>(test.n_generate, 1), test.depth}));
    std::vector<int64_t> samples;
    while (static_cast<int64_t>(samples.size()) < repetitions && !interrupted_) {
      WINNOW_ASSIGN(const int64_t ns, Once(test));
      samples.push_back(ns);
    }
    return samples;
  }

  const CacheState& cache() const { return cache_; }

 private:
  bool evicts() const { return session_.compression().method != nullptr; }

  Result<int64_t> Once(const Test& test) {
    std::unique_ptr<runtime::Session> copy;
    if (evicts()) {
      WINNOW_ASSIGN(copy, session_.Fork());
    } else {
      session_.Truncate(test.depth);
    }
    runtime::Session& session = copy ? *copy : session_;
    const std::vector<runtime::TokenId> prompt = RandomTokens(test.n_prompt);
    const std::vector<runtime::TokenId> generated = RandomTokens(test.n_generate);
    const auto start = std::chrono::steady_clock::now();
    if (!prompt.empty()) WINNOW_TRY(session.Prefill(prompt));
    for (const runtime::TokenId token : generated) WINNOW_TRY(session.Decode(token));
    const auto time = std::chrono::steady_clock::now() - start;
    cache_ = {.kept = MeanKept(session), .bytes = session.cache_bytes()};
    return std::chrono::duration_cast<std::chrono::nanoseconds>(time).count();
  }

  std::vector<runtime::TokenId> RandomTokens(int64_t n) {
    std::vector<runtime::TokenId> tokens;
    for (int64_t i = 0; i < n; ++i) {
      tokens.push_back(
          static_cast<runtime::TokenId>(rng_.Below(static_cast<uint64_t>(vocabulary_))));
    }
    return tokens;
  }

  runtime::Session& session_;
  const std::atomic<bool>& interrupted_;
  int64_t vocabulary_;
  Rng rng_{1};
  CacheState cache_;
};

struct Spread {
  double mean = 0;
  double deviation = 0;  // of the sample
};

template <typename T>
Spread SpreadOf(const std::vector<T>& values) {
  Spread spread;
  const double n = static_cast<double>(values.size());
  for (const T value : values) spread.mean += static_cast<double>(value) / n;
  if (values.size() < 2) return spread;
  double squares = 0;
  for (const T value : values) squares += std::pow(static_cast<double>(value) - spread.mean, 2);
  spread.deviation = std::sqrt(squares / (n - 1));
  return spread;
}

std::string Now() {
  const std::time_t now = std::time(nullptr);
  char text[32];
  std::strftime(text, sizeof(text), "%Y-%m-%dT%H:%M:%SZ", std::gmtime(&now));
  return text;
}

// A result with the field names of llama-bench.
Record ResultRecord(runtime::Engine& engine, const Setting& setting, const Test& test,
                    const std::vector<int64_t>& samples_ns, const CacheState& cache) {
  std::vector<double> samples_ts;
  for (const int64_t ns : samples_ns) {
    samples_ts.push_back(1e9 * static_cast<double>(test.n_tokens()) / static_cast<double>(ns));
  }
  int64_t model_size = 0;
  for (const gguf::Tensor& tensor : engine.file().tensors()) {
    model_size += static_cast<int64_t>(tensor.bytes.size());
  }
  const Spread ns = SpreadOf(samples_ns);
  const Spread ts = SpreadOf(samples_ts);
  return {{"build_version", WINNOW_VERSION},
          {"cpu_info", report::CpuName()},
          {"backends", "CPU"},
          {"cpu_target", engine.backend().target()},
          {"model_filename", setting.model},
          {"model_type", DescriptionOf(engine)},
          {"model_size", model_size},
          {"model_n_params", engine.model().n_parameters()},
          {"n_batch", setting.batch},
          {"n_ubatch", setting.micro_batch},
          {"n_threads", engine.pool().n_threads()},
          {"type_k", setting.key_type},
          {"type_v", setting.value_type},
          {"kv_method", setting.method},
          {"kv_kept", cache.kept},
          {"kv_bytes", cache.bytes},
          {"n_prompt", test.n_prompt},
          {"n_gen", test.n_generate},
          {"n_depth", test.depth},
          {"test_time", Now()},
          {"avg_ns", static_cast<int64_t>(ns.mean)},
          {"stddev_ns", static_cast<int64_t>(ns.deviation)},
          {"avg_ts", ts.mean},
          {"stddev_ts", ts.deviation},
          {"samples_ns", report::MakeList(samples_ns)},
          {"samples_ts", report::MakeList(samples_ts)}};
}

// The same result as a row of llama-bench's table; settings appear where they are not the default.
Record TableRow(const BenchFlags& flags, runtime::Engine& engine, const Setting& setting,
                const Test& test, const Record& result) {
  const auto shows = [](const auto& values, const auto& usual) {
    return values.size() > 1 || values[0] != usual;
  };
  const auto number = [&](const char* name) { return std::get<double>(result.Find(name)->data); };
  const auto integer = [&](const char* name) { return std::get<int64_t>(result.Find(name)->data); };
  Record row = {{"model", DescriptionOf(engine)},
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
    row.Add("cache", HumanBytes(integer("kv_bytes")));
  }
  row.Add("test", test.Name());
  row.Add("t/s", Fixed(number("avg_ts"), 2) + " ± " + Fixed(number("stddev_ts"), 2));
  return row;
}

// Results as they come in, printed in the format wanted.
class Output {
 public:
  Output(const BenchFlags& flags) : flags_(flags) {}

  void Add(runtime::Engine& engine, const Setting& setting, const Test& test,
           const std::vector<int64_t>& samples_ns, const CacheState& cache) {
    Record result = ResultRecord(engine, setting, test, samples_ns, cache);
    rows_.push_back(TableRow(flags_, engine, setting, test, result));
    results_.push_back(std::move(result));
    if (flags_.output == "jsonl") {
      Print(report::ToJsonLines(std::span(&results_.back(), 1)));
      Flush();
    }
  }

  void Finish() const {
    if (flags_.output == "md") Print(report::ToMarkdown(rows_));
    if (flags_.output == "csv") Print(report::ToCsv(results_));
    if (flags_.output == "json") {
      report::List list(results_.begin(), results_.end());
      Print(report::ToJson(list, 2) + "\n");
    }
  }

 private:
  const BenchFlags& flags_;
  std::vector<Record> rows_;
  std::vector<Record> results_;
};

}  // namespace

int Bench(Arguments arguments) {
  BenchFlags flags;
  FlagTable table = MakeTable(flags);
  if (const auto over = ParseFlags(table, arguments)) return *over;
  const auto tests = TestsOf(flags);
  if (!tests) return Misuse("bench", tests.error().message);
  if (flags.repetitions < 1) return Misuse("bench", "flag -r: expected at least 1");
  if (flags.models.empty()) return Misuse("bench", "no model: give a GGUF file with -m FILE");
  constexpr std::string_view kFormats[] = {"md", "json", "jsonl", "csv"};
  if (std::find(std::begin(kFormats), std::end(kFormats), flags.output) == std::end(kFormats)) {
    return Misuse("bench", "flag -o: '" + flags.output + "' is not md, json, jsonl or csv");
  }
  int64_t context = 1;
  for (const Test& test : *tests) context = std::max(context, test.depth + test.n_tokens());
  const std::vector<Setting> settings = SettingsOf(flags);
  if (flags.log_flags.kv.trace && settings.size() > 1) {
    return Misuse("bench", "flag --trace: give it one model and one setting");
  }
  for (const Setting& setting : settings) {
    const auto valid = Validate(setting.Flags(flags, context));
    if (!valid) return Misuse("bench", valid.error().message);
  }

  ConsoleLog log = MakeLog(flags.log_flags, flags.notes);
  if (!flags.log_flags.verbose) log.set_least(LogLevel::kWarning);  // the results say what was run
  const std::atomic<bool>& interrupted = CatchInterrupt();
  Output output(flags);
  ProgressLine progress("measuring");
  const double n_runs = static_cast<double>(settings.size() * tests->size());
  double n_done = 0;
  for (const Setting& setting : settings) {
    auto loaded = Load(setting.Flags(flags, context), log);
    if (!loaded) return Fail(loaded.error());
    Runner runner(*loaded->session, interrupted);
    for (const Test& test : *tests) {
      if (flags.progress) ConsoleLog().Info("bench  " + setting.model + " " + test.Name());
      const auto samples = runner.Measure(test, flags.repetitions, flags.warmup);
      if (!samples) return Fail(samples.error());
      if (!samples->empty()) output.Add(*loaded->engine, setting, test, *samples, runner.cache());
      if (interrupted) break;
      progress.Update(++n_done / n_runs);
    }
    if (const auto finished = FinishTrace(*loaded); !finished) return Fail(finished.error());
    if (interrupted) break;
  }
  progress.Erase();
  output.Finish();
  const int printed = FinishOutput();
  return printed == kDone && interrupted ? kInterrupted : printed;
}

}  // namespace winnow::apps
