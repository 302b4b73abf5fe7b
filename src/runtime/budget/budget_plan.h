#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "base/result.h"
#include "runtime/budget/cache_facts.h"
#include "runtime/budget/compression_options.h"
#include "runtime/budget/memory_plan.h"

namespace winnow::runtime {

// How far a sequence is: with the same options another goes on from there.
struct CompressionProgress {
  int64_t budget = 0;    // slots per KV head; 0 before the first prompt where it depends on it
  int64_t n_seen = 0;    // tokens
  int64_t n_prompt = 0;  // of them those up to the end of the last prefill call
  int64_t n_next = 0;    // ResolvedBudget::n_next
};

// How a prompt is read.
struct ResolvedBudget {
  int64_t budget = 0;    // slots per KV head
  int64_t n_call = 0;    // tokens taken at a time
  int64_t n_next = 0;    // of the next prompt that can be taken at a time whatever was generated
  bool appends = false;  // it is read as generated tokens are (BudgetPlan::Appends)
};

// How large a budget is, and what it takes in bytes: arithmetic on what a user allows, what the
// method states, and what a cache is and holds.
class BudgetPlan {
 public:
  // The options outlive the plan.
  BudgetPlan(const CompressionOptions& options, const CacheFacts& cache,
             const CompressionProgress& progress)
      : options_(options), method_(options.method.get()), cache_(cache), progress_(progress) {}

  // What a prompt of n_prompt tokens would be read with, in calls of n_call at most; of fewer where
  // a memory limit and what the cache holds leave no room for so many. Error: the memory limit does
  // not allow it (says how many bytes would be needed); the cache would be full before the budget
  // is reached (says the largest budget); a share of the prompt is less than the method protects
  // (says the minimum).
  Result<ResolvedBudget> Prompt(const CacheContents& held, int64_t n_prompt, int64_t n_call) const;
  // The most bytes while it is read so.
  int64_t PromptPeak(const CacheContents& held, int64_t n_prompt,
                     const ResolvedBudget& resolved) const;
  // What such a prompt and n_generate tokens after it take. Error: as Prompt.
  Result<Reservation> Reserve(const CacheContents& held, int64_t n_prompt, int64_t n_call,
                              int64_t n_generate) const;

  // Whether a prompt after others, a question say, is not compressed but comes on top, as generated
  // tokens do: where the method asks for it (DecisionPolicy::appends_short_prompts), as long as
  // what came since the last compression is at most reserve_tokens or half of what the budget kept,
  // and a memory limit leaves as much room again for the answer.
  bool Appends(int64_t live_bytes, int64_t n_prompt) const;

  // Whether such a prompt is one for which the budget is to be searched (CompressionOptions::
  // quality): everything before it is still there, and it is long enough and not appended.
  bool SearchesQuality(int64_t live_bytes, int64_t n_prompt) const;

  // With n tokens more, nothing evicted.
  int64_t BytesWith(int64_t live_bytes, int64_t n_tokens) const;
  // Tokens that still fit under the memory limit, where the cache grows while generating.
  int64_t RemainingTokens(int64_t live_bytes) const;
  // Error: more bytes than the limit, for n_tokens more.
  Result<void> CheckBytes(int64_t peak_bytes, int64_t n_tokens) const;

  // Whether texts may be longer than the cache's capacity: positions are not those of the text, and
  // entries are evicted before a call (of a chunk, or a token) could fill it.
  bool Streams() const { return Streams(SmallestBudget()); }
  // The largest budget under which they may; 0 if there is none.
  int64_t LargestStreamingBudget() const;

 private:
  Result<ResolvedBudget> Resolve(const CacheContents& held, int64_t n_prompt, int64_t n_call) const;
  // The largest budget, and calls as long as they may be, that a limit on the bytes allows.
  Result<ResolvedBudget> ResolveMemoryLimit(const CacheContents& held, int64_t n_prompt,
                                            int64_t n_call) const;
  // Of a first prompt that is replayed: calls as long as leave at least half of the budget that the
  // shortest ones would. Nothing: not even those fit.
  static std::optional<ResolvedBudget> SettleReplay(
      int64_t smallest, int64_t largest, int64_t n_call,
      const std::function<bool(const ResolvedBudget&)>& fits);
  Result<int64_t> BudgetFromRatio(int64_t n_tokens) const;
  // All of a text of which nothing was evicted yet, until a search has said how much may stay; then
  // the same share of a longer one.
  int64_t BudgetFromQuality(int64_t n_tokens) const;
  int64_t NextCall() const;
  int64_t MaxListBytes(int64_t n_slots) const;
  // reserve_tokens in so many layers, as far as a quarter of the bytes goes.
  int64_t TokensWithinQuarter(int n_layers) const;
  // Whether the cache stops growing while tokens are generated: some methods thin it out and let it
  // grow, or leave layers alone.
  bool HoldsBudget() const;
  // Whether prompts are brought to a size that does not depend on the length of the text.
  bool Sizes() const;
  // The budget; before the first prompt the least that it can be.
  int64_t SmallestBudget() const;
  bool Streams(int64_t budget) const;

  const CompressionOptions& options_;
  const compression::Method* method_;
  CacheFacts cache_;
  CompressionProgress progress_;
};

}  // namespace winnow::runtime
