#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "attention/layer_pass.h"
#include "base/result.h"
#include "cache/cache.h"
#include "compression/decide.h"
#include "compression/method.h"
#include "kernels/ops.h"
#include "runtime/budget/budget_plan.h"
#include "runtime/budget/compression_options.h"
#include "runtime/budget/memory_plan.h"
#include "runtime/call_invariants.h"

namespace winnow::runtime {

// Keeps one sequence's cache at its size: owns the budget and the method's working memory.
class Compressor {
 public:
  // Sets the cache configuration that the method needs. config.shape is the model's on entry and
  // the cache's on return.
  struct ModelFacts {
    int n_q_heads = 0;
    int64_t trained_context = 0;
  };
  static void Shape(const CompressionOptions& options, const ModelFacts& model,
                    cache::CacheConfig& config);

  // For `n_q_heads` query heads. Backend and invariants must outlive the compressor, and so must
  // the model's `projections`, if given.
  Compressor(const CompressionOptions& options, int n_q_heads, kernels::Backend& backend,
             Invariants& invariants, const compression::OutputProjections* projections = nullptr)
      : options_(options),
        n_q_heads_(n_q_heads),
        backend_(backend),
        projections_(projections),
        needs_(options.method ? options.method->needs() : compression::Needs{}),
        invariants_(invariants) {}

  // Error profiles of the model, for methods that need them; must outlive the compressor.
  void SetProfiles(const compression::ErrorProfiles* profiles) { profiles_ = profiles; }

  bool active() const { return options_.method != nullptr; }
  const CompressionOptions& options() const { return options_; }
  // Slots per KV head; 0 without a budget, and before the first prompt if the budget depends on it.
  int64_t budget() const { return progress_.budget; }

  // BudgetPlan::Prompt, for this cache and the sequence's progress.
  Result<ResolvedBudget> CheckPrompt(const cache::Cache& cache, int64_t n_prompt,
                                     int64_t n_call) const;
  // Begins such a prompt: fixes the budget and returns how many tokens to read at a time. Error: as
  // CheckPrompt, and nothing is changed.
  Result<int64_t> BeginPrompt(const cache::Cache& cache, int64_t n_prompt, int64_t n_call);
  // BudgetPlan::SearchesQuality; false if the next prompt's budget was set.
  bool SearchesQuality(const cache::Cache& cache, int64_t n_prompt) const {
    return options_.quality != 0 && next_budget_ == 0 &&
           MakePlan(cache).SearchesQuality(cache.live_bytes(), n_prompt);
  }
  // Sets the next prompt's budget, whatever the options say; 0: unset.
  void SetNextBudget(int64_t budget) { next_budget_ = budget; }
  // Whether the current prompt is read like generated tokens: in one decode call.
  bool appends() const { return appends_; }
  // Bytes of this cache for such a prompt and n_generate tokens after it. Error: as CheckPrompt.
  Result<Reservation> Plan(const cache::Cache& cache, int64_t n_prompt, int64_t n_call,
                           int64_t n_generate) const;
  // Builds with tests assert that the sequence stays within `reservation` for the next n_tokens
  // tokens.
  void Reserve(const Reservation& reservation, int64_t n_tokens);
  // Checks that one more generated token stays within the memory limit.
  Result<void> CheckStep(const cache::Cache& cache);
  // Call before every call of the model.
  void BeginCall(compression::Phase phase, int64_t n_call);
  // Sets what this call asks of attention: taps, rows, and which entries it attends to.
  void Ask(attention::Sequence& sequence) const;
  // Runs the method on a layer and applies its plans. Error (also of AfterReplayLayer and EndCall):
  // an invariant is broken, and the call cannot go on.
  Result<void> AfterLayer(cache::Cache& cache, const attention::LayerDone& done);
  // The replay that follows the current prefill call; null if there is none, or if nothing must be
  // evicted.
  const compression::ReplaySpec* Replay() const {
    return needs_.replay.any() && progress_.n_seen > progress_.budget ? &needs_.replay : nullptr;
  }
  // Announces the part of the replay that the model reads next, n_rows tokens including the
  // instruction.
  void BeginReplay(const compression::ReplayChunk& chunk, int64_t n_rows);
  // Shows the method a layer that also holds the replay's entries.
  Result<void> AfterReplayLayer(cache::Cache& cache, const attention::LayerDone& done);
  bool DecidesAtEnd() const {
    return active() && options_.method->traits().decisions.prefill ==
                           compression::DecisionPolicy::Prefill::kAtEnd;
  }
  // After a prefill call and its replay, before EndCall: runs one piece of the decision about all
  // layers, if the method decides at the end. True: this was the last piece.
  bool DecideSome(cache::Cache& cache);
  // Changes the budget of a prefill call that has not made its decision at the end yet.
  void ChangeBudget(int64_t budget);
  // Continues such a call of another compressor under another budget. copy: a copy of its cache.
  void ContinueCall(const Compressor& other, const cache::Cache& copy, int64_t budget);
  // Call after every call of the model. Error: an invariant is broken.
  Result<void> EndCall(const cache::Cache& cache);
  // Rows of the call that the layers after the current one compute; empty: all.
  std::span<const int32_t> RowsKept() const;
  void Reset();
  const CompressionProgress& progress() const { return progress_; }
  void ResumeFrom(const CompressionProgress& progress) { progress_ = progress; }
  // As ResumeFrom, with progress from a file and the cache restored from it. Error: these options
  // cannot have produced that state.
  Result<void> Restore(const CompressionProgress& progress, const cache::Cache& cache);
  // Sets the text's length back to n_tokens. Requires: nothing was evicted.
  void Truncate(int64_t n_tokens);

  // As in BudgetPlan, for this cache.
  int64_t RemainingTokens(const cache::Cache& cache) const;
  bool Streams(const cache::Cache& cache) const { return MakePlan(cache).Streams(); }
  int64_t LargestStreamingBudget(const cache::Cache& cache) const {
    return MakePlan(cache).LargestStreamingBudget();
  }

 private:
  compression::LayerCall MakeCall(cache::Cache& cache, const kernels::Taps& taps);
  // State of the current call of the model.
  struct Call {
    compression::Phase phase = compression::Phase::kPrefill;
    int64_t n_rows = 0;         // in the current layer
    bool later_prompt = false;  // it reads all of a later prompt
    int64_t n_protected = 0;    // LayerCall::n_protected
    // Of a prefill call.
    std::unique_ptr<compression::Memory> memory = nullptr;
    compression::ReplayChunk replay_chunk = {};
    int64_t n_replay_rows = 0;
    bool replayed = false;
    int n_decided = 0;  // calls of DecideSome

    Call Copy() const;
  };
  // Newest entries of the current prefill call that are never evicted (LayerCall::n_protected).
  int64_t Protected(int64_t budget) const {
    return call_.later_prompt ? compression::ProtectedOfLaterPrompt(call_.n_rows, budget) : 0;
  }
  compression::PlanHooks MakeHooks(const cache::Cache& cache);
  BudgetPlan MakePlan(const cache::Cache& cache) const {
    return {options_, ReadFacts(cache), progress_};
  }
  // A plan that starts from the cache's contents, which it reads into contents_.
  MemoryPlan& StartPlan(const cache::Cache& cache);
  CallInvariants::Limits MakeLimits() const;

  CompressionOptions options_;
  int n_q_heads_;
  kernels::Backend& backend_;
  const compression::OutputProjections* projections_;
  const compression::ErrorProfiles* profiles_ = nullptr;
  compression::Needs needs_;  // cached, as Method::needs() builds them on each call
  Call call_;
  bool appends_ = false;       // ResolvedBudget::appends of the current prompt
  bool later_prompt_ = false;  // the current prompt follows others and is read in one call
  int64_t next_budget_ = 0;    // from SetNextBudget; 0: none
  CompressionProgress progress_;
  int64_t planned_peak_ = 0;  // bytes, of the prompt or the active step
  Reservation reservation_;
  int64_t n_reserved_tokens_ = -1;  // length of the sequence up to which it applies
  CacheContents contents_;          // reused from step to step, with the plan
  std::optional<MemoryPlan> plan_;
  CallInvariants invariants_;
  compression::Scratch scratch_;
  compression::PlanList plans_;
};

}  // namespace winnow::runtime
