#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "attention/layer_pass.h"
#include "base/result.h"
#include "cache/cache.h"
#include "compression/decide.h"
#include "compression/method.h"
#include "kernels/ops.h"
#include "runtime/invariants.h"
#include "runtime/memory_plan.h"

namespace winnow::runtime {

// Where a plan belongs, for traces. The cache is as it was before the plan.
struct PlanContext {
  const cache::Cache& cache;
  compression::Phase phase = compression::Phase::kPrefill;
  int64_t n_seen = 0;  // tokens of the sequence, those of the call included
};

// How a session's cache is compressed. At most one of size, ratio and memory_bytes is set; methods
// that need a budget need one of them.
struct CompressionOptions {
  compression::MethodPtr method = {};  // null: nothing is evicted
  int64_t size = 0;                    // slots per KV head
  double ratio = 0;                    // slots as a share of the prompt, (0, 1]
  int64_t memory_bytes = 0;            // of the whole cache, at any moment
  int64_t prefill_chunk = 0;           // tokens of a prompt taken at a time; 0: all of it
  // Room kept under memory_bytes: for generated tokens, where the method lets the cache grow while
  // generating, and in one layer for a part of the next prompt; a quarter of the bytes at most for
  // either.
  int64_t reserve_tokens = 256;
  std::function<void(const cache::Plan& plan, const PlanContext& context)> on_plan = {};
  compression::OnErrorCurve on_error_curve = {};  // of methods that compute them
};

// Brings one sequence's cache to its size: owns the budget and the working memory of the method.
class Compressor {
 public:
  // Errors: no budget where one is needed, one where none is, several; below what the method
  // protects (says the minimum).
  static Result<void> Check(const CompressionOptions& options);
  // What the cache of such a session must be like. config.shape is the model's before and the
  // cache's after.
  struct ModelFacts {
    int n_q_heads = 0;
    int64_t trained_context = 0;
  };
  static void Shape(const CompressionOptions& options, const ModelFacts& model,
                    cache::CacheConfig& config);

  // For `n_q_heads` query heads. Backend and invariants outlive the compressor.
  // `projections`: the model's, where there is one; they outlive it too.
  Compressor(const CompressionOptions& options, int n_q_heads, kernels::Backend& backend,
             Invariants& invariants, const compression::OutputProjections* projections = nullptr)
      : options_(options),
        n_q_heads_(n_q_heads),
        backend_(backend),
        invariants_(invariants),
        projections_(projections),
        needs_(options.method ? options.method->needs() : compression::Needs{}) {}

  // Of the model, for methods that need them; they outlive the compressor.
  void SetProfiles(const compression::ErrorProfiles* profiles) { profiles_ = profiles; }

  bool active() const { return options_.method != nullptr; }
  const CompressionOptions& options() const { return options_; }
  // Slots per KV head; 0 before the first prompt where it depends on it, and without a budget.
  int64_t budget() const { return budget_; }

  // How a prompt is read.
  struct ResolvedBudget {
    int64_t budget = 0;  // slots per KV head
    int64_t n_call = 0;  // tokens taken at a time
    int64_t n_next = 0;  // of the next prompt that can be taken at a time whatever was generated
  };
  // What a prompt of n_prompt tokens would be read with, in calls of n_call at most; of fewer where
  // a memory limit and what the cache holds leave no room for so many. Error: the memory limit does
  // not allow it (says how many bytes would be needed); the cache would be full before the budget
  // is reached (says the largest budget); a share of the prompt is less than the method protects
  // (says the minimum).
  Result<ResolvedBudget> CheckPrompt(const cache::Cache& cache, int64_t n_prompt,
                                     int64_t n_call) const;
  // Such a prompt follows: settles the budget and returns how many tokens to take at a time. Error:
  // as CheckPrompt, and nothing is changed.
  Result<int64_t> BeginPrompt(const cache::Cache& cache, int64_t n_prompt, int64_t n_call);
  // What such a prompt and n_generate tokens after it take in this cache. Error: as CheckPrompt.
  Result<Reservation> Plan(const cache::Cache& cache, int64_t n_prompt, int64_t n_call,
                           int64_t n_generate) const;
  // For the next n_tokens tokens the sequence stays within `reservation`: asserted in builds with
  // tests.
  void Reserve(const Reservation& reservation, int64_t n_tokens);
  // That one more generated token stays within the memory limit. Error: it does not.
  Result<void> CheckStep(const cache::Cache& cache);
  // Before every call of the model.
  void BeginCall(compression::Phase phase, int64_t n_call);
  // What attention is asked in this call.
  kernels::TapSpec Taps() const;
  attention::RowSpec Rows() const;
  // Runs the method on a layer and carries out its plans. Error: an invariant is broken, and the
  // call cannot go on; the same from the two below.
  Result<void> AfterLayer(cache::Cache& cache, const attention::LayerDone& done);
  // What is to be replayed after the prefill call at work; nothing where nothing must be evicted.
  const compression::ReplaySpec* Replay() const {
    return needs_.replay.any() && n_seen_ > budget_ ? &needs_.replay : nullptr;
  }
  // The part of the replay that the model reads next, n_rows tokens in all.
  void BeginReplay(const compression::ReplayChunk& chunk, int64_t n_rows);
  // Shows the method a layer that holds the replay's entries too.
  Result<void> AfterReplayLayer(cache::Cache& cache, const attention::LayerDone& done);
  bool DecidesAtEnd() const { return active() && options_.method->traits().decides_at_end; }
  // After a prefill call and its replay, before EndCall: the method decides about all layers, if it
  // does so at the end.
  void DecideAll(cache::Cache& cache);
  // After every call of the model. Error: an invariant is broken.
  Result<void> EndCall(const cache::Cache& cache);
  // Rows of the call that layers after this one compute; empty: all.
  std::span<const int32_t> RowsKept() const;
  void Reset();
  // How far it is: with the same options another goes on from there.
  struct Progress {
    int64_t budget = 0;    // slots per KV head
    int64_t n_seen = 0;    // tokens
    int64_t n_prompt = 0;  // of them those up to the end of the last prefill call
    int64_t n_next = 0;    // ResolvedBudget::n_next
  };
  Progress progress() const {
    return {.budget = budget_, .n_seen = n_seen_, .n_prompt = n_prompt_, .n_next = n_next_};
  }
  void ResumeFrom(const Progress& progress);
  // The same from a file, whose cache this is. Error: it cannot have come from these options.
  Result<void> Restore(const Progress& progress, const cache::Cache& cache);
  // The text is n_tokens long again. Requires: nothing was evicted.
  void Truncate(int64_t n_tokens);

  // Tokens that still fit under the memory limit, where the cache grows while generating.
  int64_t RemainingTokens(const cache::Cache& cache) const;
  // Whether texts may be longer than the cache's capacity: positions are not those of the text, and
  // entries are evicted before a call (of a chunk, or a token) could fill it.
  bool Streams(const cache::Cache& cache) const { return Streams(cache, SmallestBudget()); }
  // The largest budget under which they may; 0 if there is none.
  int64_t LargestStreamingBudget(const cache::Cache& cache) const;

  static CacheCost MakeCost(const cache::Cache& cache);
  static Entries EntriesHeld(const cache::Cache& cache, int layer);

 private:
  compression::LayerCall MakeCall(cache::Cache& cache, const kernels::Taps& taps);
  compression::PlanHooks MakeHooks(const cache::Cache& cache);
  Result<ResolvedBudget> ResolveBudget(const cache::Cache& cache, int64_t n_prompt,
                                       int64_t n_call) const;
  // The largest budget, and calls as long as they may be, that a limit on the bytes allows.
  Result<ResolvedBudget> ResolveMemoryLimit(const cache::Cache& cache, int64_t n_prompt,
                                            int64_t n_call) const;
  // Of a first prompt that is replayed: calls as long as leave at least half of the budget that the
  // shortest ones would. Nothing: not even those fit.
  static std::optional<ResolvedBudget> SettleReplay(
      int64_t smallest, int64_t largest, int64_t n_call,
      const std::function<bool(const ResolvedBudget&)>& fits);
  Result<int64_t> BudgetFromRatio(int64_t n_tokens) const;
  int64_t NextCall(const cache::Cache& cache) const;
  int64_t MaxListBytes(const cache::Cache& cache, int64_t n_slots) const;
  // reserve_tokens in so many layers, as far as a quarter of the bytes goes.
  int64_t TokensWithinQuarter(const cache::Cache& cache, int n_layers) const;
  // With n tokens more, nothing evicted.
  static int64_t BytesWith(const cache::Cache& cache, int64_t n_tokens);
  Result<void> CheckBytes(int64_t peak_bytes, int64_t n_call) const;
  // Invariants (runtime/invariants.h).
  void CheckLiveBytes(const cache::Cache& cache);
  // The same where no other layer has changed since the last check of this call: a step has a
  // check for every layer, and does not count all layers each time.
  void CheckLiveBytes(const cache::Cache& cache, int layer);
  void CheckLimits();
  void Record(const Result<void>& holds);
  Result<void> FirstViolation() const;  // in this call
  // Whether layers hold what the method states of a phase, and `n_more` entries per KV head.
  bool KeepsSizes(const cache::Cache& cache, compression::Phase phase, int64_t n_more) const;
  bool Compresses(compression::Phase phase) const;
  // Whether the cache stops growing while tokens are generated: some methods thin it out and let it
  // grow, or leave layers alone.
  bool HoldsBudget(const cache::Cache& cache) const;
  // Whether prompts are brought to a size that does not depend on the length of the text.
  bool Sizes(const cache::Cache& cache) const;
  // The budget; before the first prompt the least that it can be.
  int64_t SmallestBudget() const;
  bool Streams(const cache::Cache& cache, int64_t budget) const;

  CompressionOptions options_;
  int n_q_heads_;
  kernels::Backend& backend_;
  Invariants& invariants_;
  const compression::OutputProjections* projections_;
  const compression::ErrorProfiles* profiles_ = nullptr;
  compression::Needs needs_;  // the method's, which makes them anew each time it is asked
  std::unique_ptr<compression::Memory> memory_;  // of the prefill call at work
  compression::ReplayChunk replay_chunk_;
  int64_t n_replay_rows_ = 0;
  bool replayed_ = false;  // the call at work
  int64_t budget_ = 0;
  int64_t n_seen_ = 0;
  int64_t n_prompt_ = 0;              // of them those up to the end of the last prefill call
  int64_t n_next_ = 0;                // ResolvedBudget::n_next
  int64_t planned_peak_ = 0;          // bytes, of the prompt or the step at work
  std::vector<int64_t> layer_bytes_;  // [layer] live when last checked
  int64_t live_bytes_ = 0;            // of all layers
  Reservation reservation_;
  int64_t n_reserved_tokens_ = -1;  // tokens of the sequence up to which it counts
  std::vector<Entries> held_;       // reused from step to step, with the plan
  std::optional<MemoryPlan> step_plan_;
  std::optional<Error> violation_;  // the first in this call
  int64_t n_rows_ = 0;              // of the call, in the layer at work
  compression::Phase phase_ = compression::Phase::kPrefill;
  compression::Scratch scratch_;
  compression::PlanList plans_;
};

}  // namespace winnow::runtime
