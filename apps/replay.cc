#include "replay/replay.h"

#include <algorithm>

#include "base/fixed.h"
#include "base/thread_pool.h"
#include "command_files.h"
#include "commands.h"
#include "compression/registry.h"
#include "interrupt.h"
#include "kernels/backends.h"
#include "options.h"
#include "plan_trace.h"
#include "report/record.h"

namespace winnow::apps {
namespace {

struct ReplayFlags {
  KvFlags kv;
  std::string in;
  std::string out;
  int threads = -1;
  std::string cpu_target;
  bool json = false;
};

FlagTable MakeTable(ReplayFlags& flags) {
  FlagTable table(
      "replay", "--method SPEC --in FILE --out FILE [flags]",
      "Runs a method on queries, keys and values recorded from any model, without the model: the "
      "prompt as one prefill or in chunks, then a decode step for every other token. "
      "docs/kv-cache.md describes both files.");
  flags.kv.method.clear();
  table.Add({"--method", "--kv-method"}, "SPEC", "METHOD or METHOD:PARAMETER=VALUE,...",
            &flags.kv.method);
  table.Add({"--in"}, "FILE", "recorded queries, keys and values (safetensors)", &flags.in);
  table.Add({"--out"}, "FILE", "what was kept, and the outputs of attention (safetensors)",
            &flags.out);
  AddBudgetFlags(table, flags.kv, {"--size", "--kv-size"}, {"--ratio", "--kv-ratio"},
                 {"--memory", "--kv-memory"});
  table.Add({"--decode", "--kv-decode"}, "SPEC", "another method for the decode steps",
            &flags.kv.decode);
  AddChunkFlag(table, flags.kv);
  table.Add({"--trace"}, "FILE", "write every decision of the method, as JSON lines",
            &flags.kv.trace);
  table.Add({"-t", "--threads"}, "N", "threads; -1: one for each core", &flags.threads);
  table.Add({"--cpu-target"}, "NAME",
            "instruction set to use; empty: the best there is; reference: plain loops",
            &flags.cpu_target);
  table.Switch({"--json"}, "the summary as a JSON object", &flags.json);
  table.Add({{"-h", "--help"}, "", "this text", "", {}, false, {}});
  return table;
}

Result<std::unique_ptr<kernels::Backend>> MakeBackend(const std::string& target, ThreadPool& pool) {
  if (target == "reference") return kernels::MakeReferenceBackend();
  return kernels::MakeCpuBackend({.pool = &pool, .target = target});
}

void PrintSummary(const ReplayFlags& flags, const replay::Recording& recording,
                  const std::string& method, const replay::ReplaySummary& summary) {
  if (flags.json) {
    report::Record record = {{"method", method},
                             {"seen", recording.n_tokens()},
                             {"prompt", recording.n_prompt()},
                             {"kept", report::MakeList(summary.kept)}};
    if (summary.budget > 0) record.Add("budget", summary.budget);
    Print(report::ToJson(record) + "\n");
    return;
  }
  const auto [min, max] = std::minmax_element(summary.kept.begin(), summary.kept.end());
  Print(method + ": " + std::to_string(recording.n_tokens()) + " tokens, " +
        std::to_string(recording.n_prompt()) + " of them a prompt; kept per KV head " +
        Fixed(*min, 1) + (*min == *max ? "" : " to " + Fixed(*max, 1)) + " in " +
        std::to_string(recording.n_layers()) + " layers\n");
}

}  // namespace

int Replay(Arguments arguments) {
  ReplayFlags flags;
  FlagTable table = MakeTable(flags);
  if (const auto over = ParseFlags(table, arguments)) return *over;
  if (flags.kv.method.empty()) return Misuse("replay", "no method: give one with --method SPEC");
  if (flags.in.empty() || flags.out.empty()) return Misuse("replay", "give both --in and --out");
  if (flags.threads == 0 || flags.threads < -1 || flags.threads > ThreadPool::kMaxThreads) {
    return Misuse("replay",
                  "flag -t: expected 1 to " + std::to_string(ThreadPool::kMaxThreads) + ", or -1");
  }
  const auto compression = CompressionOptionsFrom(flags.kv);
  if (!compression) return Misuse("replay", compression.error().message);
  replay::ReplayOptions options = {.compression = *compression, .progress = {}};
  runtime::CompressionOptions& kv = options.compression;
  if (!kv.method) {
    auto full = compression::MakeMethod("full");
    if (!full) return Fail(full.error());
    kv.method = *std::move(full);
  }

  CommandFiles files;
  files.Reads("--in", flags.in);
  files.Writes("--out", flags.out);
  files.Writes("--trace", flags.kv.trace);
  if (const auto over = files.Refused("replay")) return *over;
  if (kv.method->needs().error_profiles) {
    ConsoleLog().Warning(kv.method->traits().spec +
                         ": a recording has no profile of a model; the budget is shared without");
  }
  const std::atomic<bool>& interrupted = CatchInterrupt();
  const bool before_rope =
      kv.method->traits().storage.positions != compression::PositionMode::kOriginal;
  auto recording = replay::Recording::Open(flags.in, before_rope);
  if (!recording) return Fail(recording.error());
  std::unique_ptr<PlanTrace> trace;
  if (flags.kv.trace) {
    auto created = PlanTrace::Create(*flags.kv.trace);
    if (!created) return Fail(created.error());
    trace = *std::move(created);
    kv.on_plan = [&trace](const auto& plan, const auto& context) { trace->Write(plan, context); };
  }
  ThreadPool pool(flags.threads < 0 ? ThreadPool::DefaultThreads() : flags.threads);
  auto backend = MakeBackend(flags.cpu_target, pool);
  if (!backend) return Fail(backend.error());
  ProgressLine progress("replay");
  options.progress = [&](double done) {
    progress.Update(done);
    return !interrupted.load();
  };
  const auto summary = replay::Replay(**backend, *recording, flags.out, options);
  progress.Erase();
  if (!summary) return Fail(summary.error());
  if (trace) {
    if (const auto finished = trace->Finish(); !finished) return Fail(finished.error());
  }
  if (summary->stopped) {
    ConsoleLog().Warning("interrupted: " + flags.out + " was not written");
    return InterruptedCode();
  }
  PrintSummary(flags, *recording, kv.method->traits().spec, *summary);
  return FinishOutput();
}

}  // namespace winnow::apps
