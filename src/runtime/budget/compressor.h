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

// Brings one sequence's cache to its size: owns the budget and the working memory of the method.
class Compressor {
 public:
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
        projections_(projections),
        needs_(options.method ? options.method->needs() : compression::Needs{}),
        invariants_(invariants) {}

  // Of the model, for methods that need them; they outlive the compressor.
  void SetProfiles(const compression::ErrorProfiles* profiles) { profiles_ = profiles; }

  bool active() const { return options_.method != nullptr; }
  const CompressionOptions& options() const { return options_; }
  // Slots per KV head; 0 before the first prompt where it depends on it, and without a budget.
  int64_t budget() const { return progress_.budget; }

  // BudgetPlan::Prompt, for this cache and as far as the sequence is.
  Result<ResolvedBudget> CheckPrompt(const cache::Cache& cache, int64_t n_prompt,
                                     int64_t n_call) const;
  // Such a prompt follows: settles the budget and returns how many tokens to take at a time. Error:
  // as CheckPrompt, and nothing is changed.
  Result<int64_t> BeginPrompt(const cache::Cache& cache, int64_t n_prompt, int64_t n_call);
  // BudgetPlan::SearchesQuality. Not of a prompt whose budget was set.
  bool SearchesQuality(const cache::Cache& cache, int64_t n_prompt) const {
    return options_.quality != 0 && next_budget_ == 0 &&
           MakePlan(cache).SearchesQuality(cache.live_bytes(), n_prompt);
  }
  // Of the next prompt, whatever the options say.
  void SetNextBudget(int64_t budget) { next_budget_ = budget; }
  // Whether the prompt that was begun is read as generated tokens are: in one call, of decode.
  bool appends() const { return appends_; }
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
  // What attention is asked in this call: taps, rows, and which entries it attends to.
  void Ask(attention::Sequence& sequence) const;
  // Runs the method on a layer and carries out its plans. Error: an invariant is broken, and the
  // call cannot go on; the same from the two below.
  Result<void> AfterLayer(cache::Cache& cache, const attention::LayerDone& done);
  // What is to be replayed after the current prefill call; nothing where nothing must be evicted.
  const compression::ReplaySpec* Replay() const {
    return needs_.replay.any() && progress_.n_seen > progress_.budget ? &needs_.replay : nullptr;
  }
  // The part of the replay that the model reads next, n_rows tokens in all.
  void BeginReplay(const compression::ReplayChunk& chunk, int64_t n_rows);
  // Shows the method a layer that holds the replay's entries too.
  Result<void> AfterReplayLayer(cache::Cache& cache, const attention::LayerDone& done);
  bool DecidesAtEnd() const {
    return active() && options_.method->traits().decisions.prefill ==
                           compression::DecisionPolicy::Prefill::kAtEnd;
  }
  // After a prefill call and its replay, before EndCall: the method decides about all layers, if it
  // does so at the end, in pieces. Whether this was the last one.
  bool DecideSome(cache::Cache& cache);
  // A prefill call that has not decided at the end yet gets another budget.
  void ChangeBudget(int64_t budget);
  // Goes on with such a call of another compressor, under another budget. copy: of its cache.
  void ContinueCall(const Compressor& other, const cache::Cache& copy, int64_t budget);
  // After every call of the model. Error: an invariant is broken.
  Result<void> EndCall(const cache::Cache& cache);
  // Rows of the call that layers after this one compute; empty: all.
  std::span<const int32_t> RowsKept() const;
  void Reset();
  const CompressionProgress& progress() const { return progress_; }
  void ResumeFrom(const CompressionProgress& progress) { progress_ = progress; }
  // The same from a file, whose cache this is. Error: it cannot have come from these options.
  Result<void> Restore(const CompressionProgress& progress, const cache::Cache& cache);
  // The text is n_tokens long again. Requires: nothing was evicted.
  void Truncate(int64_t n_tokens);

  // BudgetPlan's, for this cache.
  int64_t RemainingTokens(const cache::Cache& cache) const;
  bool Streams(const cache::Cache& cache) const { return MakePlan(cache).Streams(); }
  int64_t LargestStreamingBudget(const cache::Cache& cache) const {
    return MakePlan(cache).LargestStreamingBudget();
  }

 private:
  compression::LayerCall MakeCall(cache::Cache& cache, const kernels::Taps& taps);
  // How far the current call of the model is.
  struct Call {
    compression::Phase phase = compression::Phase::kPrefill;
    int64_t n_rows = 0;         // in the current layer
    bool later_prompt = false;  // it reads all of a prompt that follows others
    int64_t n_protected = 0;    // LayerCall's
    std::unique_ptr<compression::Memory> memory = nullptr;  // of a prefill call
    compression::ReplayChunk replay_chunk = {};
    int64_t n_replay_rows = 0;
    bool replayed = false;
    int n_decided = 0;  // calls of DecideSome

    Call Copy() const;
  };
  // Newest entries that stay of the current prefill call (LayerCall::n_protected).
  int64_t Protected(int64_t budget) const {
    return call_.later_prompt ? compression::ProtectedOfLaterPrompt(call_.n_rows, budget) : 0;
  }
  compression::PlanHooks MakeHooks(const cache::Cache& cache);
  BudgetPlan MakePlan(const cache::Cache& cache) const {
    return {options_, ReadFacts(cache), progress_};
  }
  // Begun at what the cache holds, which is in contents_ then.
  MemoryPlan& StartPlan(const cache::Cache& cache);
  CallInvariants::Limits MakeLimits() const;

  CompressionOptions options_;
  int n_q_heads_;
  kernels::Backend& backend_;
  const compression::OutputProjections* projections_;
  const compression::ErrorProfiles* profiles_ = nullptr;
  compression::Needs needs_;  // the method's, which makes them anew each time it is asked
  Call call_;
  bool appends_ = false;       // ResolvedBudget's, of the prompt
  bool later_prompt_ = false;  // the prompt follows others, and is read in one call
  int64_t next_budget_ = 0;    // SetNextBudget's; 0: none
  CompressionProgress progress_;
  int64_t planned_peak_ = 0;  // bytes, of the prompt or the active step
  Reservation reservation_;
  int64_t n_reserved_tokens_ = -1;  // tokens of the sequence up to which it counts
  CacheContents contents_;          // reused from step to step, with the plan
  std::optional<MemoryPlan> plan_;
  CallInvariants invariants_;
  compression::Scratch scratch_;
  compression::PlanList plans_;
};

}  // namespace winnow::runtime
