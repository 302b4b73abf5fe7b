#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/result.h"
#include "cache/cache.h"
#include "compression/method.h"
#include "kernels/ops.h"

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
  int64_t reserve_tokens = 256;        // room kept for generated tokens under memory_bytes, where
                                       // the method lets the cache grow while generating
  std::function<void(const cache::Plan& plan, const PlanContext& context)> on_plan = {};
};

// Bytes one sequence's cache takes at most: live entries and the method's state.
struct Footprint {
  int64_t prefill_bytes = 0;  // while its prompt is read: compressed layers and a full one
  int64_t decode_bytes = 0;   // from then on to the last generated token
  bool operator==(const Footprint&) const = default;
};

// Brings one sequence's cache to its size: owns the budget and the working memory of the method.
class Compressor {
 public:
  // Errors: no budget where one is needed, one where none is, several; below what the method
  // protects (says the minimum).
  static Result<void> Check(const CompressionOptions& options);
  // What the cache of such a session must be like.
  static void Shape(const CompressionOptions& options, int64_t trained_context,
                    cache::CacheConfig& config);

  // For `n_q_heads` query heads; `rope` turns keys back where the method wants them before RoPE. It
  // and the backend outlive the compressor.
  Compressor(const CompressionOptions& options, int n_q_heads, const kernels::RopeTable& rope,
             kernels::Backend& backend)
      : options_(options), n_q_heads_(n_q_heads), rope_(rope), backend_(backend) {}

  bool active() const { return options_.method != nullptr; }
  const CompressionOptions& options() const { return options_; }
  // Slots per KV head; 0 before the first prompt where it depends on it, and without a budget.
  int64_t budget() const { return budget_; }

  // A prompt of n_prompt tokens follows, in calls of at most n_call. Settles the budget. Error:
  // the memory limit does not allow it (says how many bytes would be needed); the cache would be
  // full before the budget is reached (says the largest budget); a share of the prompt is less than
  // the method protects (says the minimum).
  Result<void> BeginPrompt(const cache::Cache& cache, int64_t n_prompt, int64_t n_call);
  // What such a prompt and n_generate tokens after it will take in this cache. Error: as
  // BeginPrompt. Requires: the cache is empty.
  Result<Footprint> FootprintOf(const cache::Cache& cache, int64_t n_prompt, int64_t n_call,
                                int64_t n_generate) const;
  // That n_call more tokens stay within the memory limit. Error: they do not.
  Result<void> CheckCall(const cache::Cache& cache, compression::Phase phase, int64_t n_call) const;
  // Before every call of the model.
  void BeginCall(compression::Phase phase, int64_t n_call);
  // What attention is asked in this call.
  kernels::TapSpec Taps() const;
  // Runs the method on a layer and carries out its plans.
  void AfterLayer(cache::Cache& cache, int layer, const kernels::Taps& taps);
  // Rows of the call that layers after this one compute; empty: all.
  std::span<const int32_t> RowsKept() const;
  void Reset();
  // Goes on where another of the same options is.
  void Follow(const Compressor& other);

  // Tokens that still fit under the memory limit, where the cache grows while generating.
  int64_t Room(const cache::Cache& cache) const;
  // Whether texts may be longer than the cache's capacity: positions are not those of the text, and
  // entries are evicted before a call (of a chunk, or a token) could fill it.
  bool Streams(const cache::Cache& cache) const { return Streams(cache, SmallestBudget()); }
  // The largest budget under which they may; 0 if there is none.
  int64_t LargestStreamingBudget(const cache::Cache& cache) const;

 private:
  int64_t PeakBytes(const cache::Cache& cache, int64_t budget, int64_t n_slots) const;
  int64_t PromptBytes(const cache::Cache& cache, int64_t budget, int64_t n_prompt,
                      int64_t n_call) const;
  // Slots per KV head for a prompt. Error: as BeginPrompt.
  Result<int64_t> BudgetFor(const cache::Cache& cache, int64_t n_prompt, int64_t n_call) const;
  bool Compresses(compression::Phase phase) const;
  // Whether the cache stops growing while tokens are generated: some methods thin it out and let it
  // grow (PyramidInfer), or leave layers alone.
  bool Holds(const cache::Cache& cache) const;
  // Whether the size is the same for longer texts, under the least budget. Requires: active().
  bool Sizes(const cache::Cache& cache) const;
  // The budget; before the first prompt the least that it can be.
  int64_t SmallestBudget() const;
  bool Streams(const cache::Cache& cache, int64_t budget) const;

  CompressionOptions options_;
  int n_q_heads_;
  const kernels::RopeTable& rope_;
  kernels::Backend& backend_;
  int64_t budget_ = 0;
  int64_t n_seen_ = 0;
  int64_t n_rows_ = 0;  // of the call, in the layer at work
  compression::Phase phase_ = compression::Phase::kPrefill;
  compression::Scratch scratch_;
  compression::PlanList plans_;
};

}  // namespace winnow::runtime
