#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "base/result.h"
#include "runtime/budget/cache_facts.h"
#include "runtime/budget/compression_options.h"
#include "runtime/budget/memory_plan.h"

namespace winnow::runtime {

// State of a sequence's compression: a sequence with the same options can resume from it.
struct CompressionProgress {
  // Slots per KV head; 0 before the first prompt if the budget depends on the prompt.
  int64_t budget = 0;
  int64_t n_seen = 0;    // tokens
  int64_t n_prompt = 0;  // those up to the end of the last prefill call
  int64_t n_next = 0;    // ResolvedBudget::n_next
};

// How a prompt is read.
struct ResolvedBudget {
  int64_t budget = 0;  // slots per KV head
  int64_t n_call = 0;  // tokens read at a time
  // Tokens of the next prompt that can be read at a time, however many were generated before.
  int64_t n_next = 0;
  bool appends = false;  // it is appended like generated tokens (BudgetPlan::Appends)
};

// Computes budgets and their bytes from what the user allows, what the method states, and what the
// cache is and holds.
class BudgetPlan {
 public:
  // The options must outlive the plan.
  BudgetPlan(const CompressionOptions& options, const CacheFacts& cache,
             const CompressionProgress& progress)
      : options_(options), method_(options.method.get()), cache_(cache), progress_(progress) {}

  // The budget and call size for a prompt of n_prompt tokens, in calls of at most n_call; shorter
  // ones if a memory limit and the cache's contents leave less room. Errors: the memory limit does
  // not allow it (says how many bytes would be needed); the cache would be full before the budget
  // is reached (says the largest budget); a share of the prompt is less than the method protects
  // (says the minimum).
  Result<ResolvedBudget> Prompt(const CacheContents& held, int64_t n_prompt, int64_t n_call) const;
  // Peak bytes while the prompt is read this way.
  int64_t PromptPeak(const CacheContents& held, int64_t n_prompt,
                     const ResolvedBudget& resolved) const;
  // Bytes for such a prompt and n_generate tokens after it. Error: as Prompt.
  Result<Reservation> Reserve(const CacheContents& held, int64_t n_prompt, int64_t n_call,
                              int64_t n_generate) const;

  // Whether a later prompt, such as a question, is not compressed but added to the kept entries
  // like generated tokens: if the method asks for it (DecisionPolicy::appends_short_prompts), as
  // long as the tokens since the last compression are at most reserve_tokens or half of what the
  // budget kept, and a memory limit leaves the same room again for the response.
  bool Appends(int64_t live_bytes, int64_t n_prompt) const;

  // Whether the budget is to be searched for this prompt (CompressionOptions::quality): everything
  // before it is still held, it is long enough, and it is not appended.
  bool SearchesQuality(int64_t live_bytes, int64_t n_prompt) const;

  // Bytes with n_tokens more and nothing evicted.
  int64_t BytesWith(int64_t live_bytes, int64_t n_tokens) const;
  // Tokens that still fit under the memory limit if the cache grows in decode.
  int64_t RemainingTokens(int64_t live_bytes) const;
  // Error: peak_bytes, needed for n_tokens more, exceed the limit.
  Result<void> CheckBytes(int64_t peak_bytes, int64_t n_tokens) const;

  // Whether texts may be longer than the cache's capacity: positions are reassigned or capped, and
  // entries are evicted before a call (a chunk or a token) could fill the cache.
  bool Streams() const { return Streams(SmallestBudget()); }
  // The largest budget with which they may; 0 if there is none.
  int64_t LargestStreamingBudget() const;

 private:
  Result<ResolvedBudget> Resolve(const CacheContents& held, int64_t n_prompt, int64_t n_call) const;
  // The largest budget, and the longest calls, that the memory limit allows.
  Result<ResolvedBudget> ResolveMemoryLimit(const CacheContents& held, int64_t n_prompt,
                                            int64_t n_call) const;
  // For a first prompt that is replayed: the longest calls that leave at least half of the budget
  // that the shortest calls would leave. Nothing: not even the shortest fit.
  static std::optional<ResolvedBudget> ResolveReplay(
      int64_t smallest, int64_t largest, int64_t n_call,
      const std::function<bool(const ResolvedBudget&)>& fits);
  Result<int64_t> BudgetFromRatio(int64_t n_tokens) const;
  // The whole text if nothing was evicted yet (the search then finds the budget); afterwards the
  // same share of a longer text.
  int64_t BudgetFromQuality(int64_t n_tokens) const;
  int64_t NextPromptReserve() const;
  int64_t MaxListBytes(int64_t n_slots) const;
  // reserve_tokens, limited to those that fit into a quarter of the bytes in n_layers layers.
  int64_t TokensWithinQuarter(int n_layers) const;
  // Whether the cache stops growing in decode. Some methods thin it out but let it grow, or leave
  // layers alone.
  bool StopsGrowing() const;
  // Whether prompts are compressed to a size that does not depend on the length of the text.
  bool CompressesPrompts() const;
  // The budget; before the first prompt the smallest it can be.
  int64_t SmallestBudget() const;
  bool Streams(int64_t budget) const;

  const CompressionOptions& options_;
  const compression::Method* method_;
  CacheFacts cache_;
  CompressionProgress progress_;
};

}  // namespace winnow::runtime
