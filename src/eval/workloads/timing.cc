#include "eval/workloads/timing.h"

#include <algorithm>
#include <utility>

#include "eval/run/batch_run.h"
#include "eval/run/equal_bytes.h"

namespace winnow::eval {
namespace {

constexpr size_t kWarmUp = 16;  // tokens

class TimingWorkload final : public Workload {
 public:
  explicit TimingWorkload(Timing timing) : timing_(std::move(timing)) {}

  uint64_t fingerprint() const override {
    return Fingerprint()
        .Add("static batch")
        .Add(timing_.prompt)
        .Add(timing_.n_generate)
        .Add(timing_.memory_limit)
        .Add(timing_.run)
        .value();
  }

  Result<Outcome> Run(const RunContext& run_context) override {
    const runtime::BatchShape shape = {.n_prompt = static_cast<int64_t>(timing_.prompt.size()),
                                       .n_generate = timing_.n_generate};
    int64_t n_sequences = 1;
    if (timing_.memory_limit > 0) {
      WINNOW_ASSIGN(n_sequences, runtime::LargestBatch(run_context.engine, run_context.options,
                                                       shape, timing_.memory_limit));
    }
    WINNOW_TRY(WarmUp(run_context));
    WINNOW_ASSIGN(const auto options, OptionsFor(run_context, timing_.prompt));
    if (!options) return Outcome{.stopped = true};
    WINNOW_ASSIGN(const auto sessions, MakeSessions(run_context.engine, *options, n_sequences));
    WINNOW_ASSIGN(const BatchTimes times,
                  RunBatch(sessions, shape, timing_.prompt, run_context.keep_going));
    if (times.stopped) return Outcome{.stopped = true};
    Outcome outcome;
    MeasureCache(*sessions.front(), outcome);
    const double prefill_s = static_cast<double>(times.prefill_ns) / 1e9;
    const double decode_s = static_cast<double>(times.decode_ns) / 1e9;
    const auto n_generated = static_cast<double>(n_sequences * timing_.n_generate);
    outcome.scores = {{"prefill_s", prefill_s},
                      {"decode_s", decode_s},
                      {"total_s", prefill_s + decode_s},
                      {"tokens_per_second", n_generated / (prefill_s + decode_s)},
                      {"decode_tokens_per_second", n_generated / decode_s},
                      {"step_ms", 1e3 * decode_s / static_cast<double>(timing_.n_generate)},
                      {"cache_mib", static_cast<double>(outcome.cache_bytes) / (1024.0 * 1024.0)},
                      {"sequences", static_cast<double>(n_sequences)}};
    outcome.details = {{"prompt_tokens", shape.n_prompt},
                       {"generated_tokens", shape.n_generate},
                       {"sequences_at_once", n_sequences},
                       {"longest_step_ms", static_cast<double>(times.longest_step_ns) / 1e6},
                       {"cache_bytes_of_all", times.cache_bytes},
                       {"cache_bytes_with_lists_of_all", times.cache_bytes_with_lists}};
    return outcome;
  }

 private:
  // Brings the weights into memory, the buffers to their size, and wakes the threads.
  Result<void> WarmUp(const RunContext& run_context) const {
    WINNOW_ASSIGN(const auto session,
                  runtime::Session::Make(run_context.engine, run_context.full_options));
    const auto n = std::min(kWarmUp, timing_.prompt.size());
    WINNOW_TRY(session->Prefill(std::span(timing_.prompt).first(n)));
    if (session->room() > 0) WINNOW_TRY(session->Decode(timing_.prompt[0]));
    return {};
  }

  Timing timing_;
};

}  // namespace

std::unique_ptr<Workload> MakeWorkload(Timing timing) {
  return std::make_unique<TimingWorkload>(std::move(timing));
}

}  // namespace winnow::eval
