#include "runtime/budget/budget_plan.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "compression/parameters.h"
#include "runtime/budget/quality_search.h"

namespace winnow::runtime {
namespace {

using compression::Phase;

// Tokens of an unlimited text.
constexpr int64_t kEndless = int64_t{1} << 40;

// The largest number in [min, max] that passes; 0: none. Requires: if a number passes, so do all
// below it.
template <class Passes>
int64_t LargestPassing(int64_t min, int64_t max, const Passes& passes) {
  if (min > max || !passes(min)) return 0;
  int64_t largest = min;
  int64_t too_many = max + 1;
  while (too_many - largest > 1) {
    const int64_t middle = largest + (too_many - largest) / 2;
    (passes(middle) ? largest : too_many) = middle;
  }
  return largest;
}

}  // namespace

bool BudgetPlan::StopsGrowing() const {
  if (!options_.Evicts(Phase::kDecode)) return false;
  const compression::Method& method = *method_;
  const int n_layers = cache_.cost.n_layers;
  return method.DecodeSizes(method.traits().budget.min, kEndless, kEndless, n_layers).total_slots <
         kEndless;
}

bool BudgetPlan::CompressesPrompts() const {
  if (!options_.Evicts(Phase::kPrefill)) return false;
  const compression::Method& method = *method_;
  return method.TotalSlots(method.traits().budget.min, kEndless, cache_.cost.n_layers) < kEndless;
}

int64_t BudgetPlan::SmallestBudget() const {
  if (progress_.budget != 0) return progress_.budget;
  if (options_.size != 0) return options_.size;
  return method_ != nullptr ? method_->traits().budget.min : 0;
}

bool BudgetPlan::Streams(int64_t budget) const {
  if (!cache::IsReassigned(cache_.positions) || !options_.Evicts(Phase::kDecode)) return false;
  const int64_t n_call = std::max<int64_t>(1, options_.prefill_chunk);
  return n_call <= cache_.capacity - method_->MaxSlots(budget, cache_.capacity);
}

int64_t BudgetPlan::LargestStreamingBudget() const {
  if (method_ == nullptr) return 0;
  return LargestPassing(method_->traits().budget.min, cache_.capacity,
                        [&](int64_t budget) { return Streams(budget); });
}

bool BudgetPlan::Appends(int64_t live_bytes, int64_t n_prompt) const {
  if (progress_.n_seen == 0 || n_prompt == 0 || method_ == nullptr) return false;
  const compression::DecisionPolicy& decisions = method_->traits().decisions;
  if (!decisions.appends_short_prompts || decisions.evicts_in_decode) return false;
  const int64_t n_since = progress_.n_seen - progress_.n_prompt;
  const int64_t n_kept = std::min(progress_.budget, progress_.n_prompt);
  if (n_since + n_prompt > std::max(options_.reserve_tokens, n_kept / 2)) return false;
  return n_prompt <= RemainingTokens(live_bytes) / 2;
}

Result<ResolvedBudget> BudgetPlan::Prompt(const CacheContents& held, int64_t n_prompt,
                                          int64_t n_call) const {
  if (Appends(held.live_bytes, n_prompt)) {
    return ResolvedBudget{.budget = progress_.budget,
                          .n_call = n_prompt,
                          .n_next = progress_.n_next,
                          .appends = true};
  }
  WINNOW_ASSIGN(const ResolvedBudget resolved, Resolve(held, n_prompt, std::min(n_call, n_prompt)));
  if (held.longest_head + n_prompt > cache_.capacity && !Streams(resolved.budget)) {
    return Error{.message = "cache: a budget of " + std::to_string(resolved.budget) +
                            " slots per KV head fills the context of " +
                            std::to_string(cache_.capacity) +
                            " tokens before anything is evicted; longer texts need " +
                            std::to_string(LargestStreamingBudget()) + " or less",
                 .code = ErrorCode::kInvalid};
  }
  return resolved;
}

int64_t BudgetPlan::PromptPeak(const CacheContents& held, int64_t n_prompt,
                               const ResolvedBudget& resolved) const {
  if (resolved.appends) return BytesWith(held.live_bytes, n_prompt);
  MemoryPlan plan(cache_.cost, method_);
  plan.Start(held.layers, progress_.n_seen, progress_.n_prompt);
  return plan.Prompt(resolved.budget, n_prompt, resolved.n_call);
}

Result<ResolvedBudget> BudgetPlan::Resolve(const CacheContents& held, int64_t n_prompt,
                                           int64_t n_call) const {
  if (options_.memory_bytes != 0 && method_ != nullptr)
    return ResolveMemoryLimit(held, n_prompt, n_call);
  if (options_.memory_bytes != 0)
    WINNOW_TRY(CheckBytes(BytesWith(held.live_bytes, n_prompt), n_prompt));
  ResolvedBudget resolved = {.budget = options_.size != 0 ? options_.size : progress_.budget,
                             .n_call = n_call};
  if (options_.ratio != 0) {
    WINNOW_ASSIGN(resolved.budget, BudgetFromRatio(progress_.n_seen + n_prompt));
  }
  if (options_.quality != 0) resolved.budget = BudgetFromQuality(progress_.n_seen + n_prompt);
  return resolved;
}

bool BudgetPlan::SearchesQuality(int64_t live_bytes, int64_t n_prompt) const {
  return options_.quality != 0 && progress_.budget >= progress_.n_prompt &&
         progress_.n_seen + n_prompt >= QualitySearch::kMinPrompt && !Appends(live_bytes, n_prompt);
}

int64_t BudgetPlan::BudgetFromQuality(int64_t n_tokens) const {
  if (progress_.budget >= progress_.n_prompt) return cache_.capacity;
  const double share =
      static_cast<double>(progress_.budget) / static_cast<double>(progress_.n_prompt);
  return std::max(progress_.budget, static_cast<int64_t>(share * static_cast<double>(n_tokens)));
}

Result<int64_t> BudgetPlan::BudgetFromRatio(int64_t n_tokens) const {
  const int64_t smallest = method_ != nullptr ? method_->traits().budget.min : 1;
  const auto share =
      static_cast<int64_t>(std::floor(options_.ratio * static_cast<double>(n_tokens)));
  if (share >= smallest) return share;
  return Error{.message = "cache budget: a share of " + compression::ShortestText(options_.ratio) +
                          " of " + std::to_string(n_tokens) + " tokens is " +
                          std::to_string(share) + " slots per KV head, " +
                          (method_ != nullptr ? method_->traits().spec : "full") +
                          " needs at least " + std::to_string(smallest),
               .code = ErrorCode::kInvalid};
}

Result<ResolvedBudget> BudgetPlan::ResolveMemoryLimit(const CacheContents& held, int64_t n_prompt,
                                                      int64_t n_call) const {
  const compression::Method& method = *method_;
  const int64_t smallest = method.traits().budget.min;
  // If texts may be longer than the cache, keep that possible.
  const int64_t largest = Streams(smallest) ? LargestStreamingBudget() : cache_.capacity;
  int64_t n_generate = 0;
  if (StopsGrowing()) {
    n_generate = cache_.capacity;  // a prompt shorter than the budget grows to it
  } else if (method.traits().budget.needed || CompressesPrompts()) {
    n_generate = TokensWithinQuarter(cache_.cost.n_layers);
  }
  MemoryPlan plan(cache_.cost, method_);
  const auto peak = [&](const ResolvedBudget& resolved) {
    plan.Start(held.layers, progress_.n_seen, progress_.n_prompt);
    const int64_t prompt = plan.Prompt(resolved.budget, n_prompt, resolved.n_call);
    const int64_t decode = plan.Decode(resolved.budget, n_generate);
    return std::max(
        {prompt, decode, plan.Prompt(resolved.budget, resolved.n_next, resolved.n_next)});
  };
  const auto fits = [&](const ResolvedBudget& resolved) {
    return peak(resolved) <= options_.memory_bytes;
  };
  const bool first = held.longest_head == 0;
  const bool in_parts = !first && options_.Evicts(Phase::kPrefill);
  if (first && method.needs().replay.any()) {
    if (const auto parts = ResolveReplay(smallest, largest, n_call, fits)) return *parts;
  }
  // A later prompt that would cost more than half of the budget is read in parts instead.
  const int64_t enough = in_parts ? std::max(smallest, progress_.budget / 2) : smallest;
  for (const int64_t n_next : {NextPromptReserve(), int64_t{0}}) {
    ResolvedBudget resolved = {.budget = 0, .n_call = n_call, .n_next = n_next};
    const int64_t whole = LargestPassing(smallest, largest, [&](int64_t budget) {
      resolved.budget = budget;
      return fits(resolved);
    });
    if (whole >= enough) return ResolvedBudget{.budget = whole, .n_call = n_call, .n_next = n_next};
    if (!in_parts) continue;
    // As much of the current budget as there is room for.
    resolved.n_call = 1;
    const int64_t budget =
        LargestPassing(smallest, std::max(smallest, progress_.budget), [&](int64_t n) {
          resolved.budget = n;
          return fits(resolved);
        });
    if (budget == 0) continue;
    resolved.budget = budget;
    resolved.n_call = LargestPassing(1, n_call, [&](int64_t n) {
      resolved.n_call = n;
      return fits(resolved);
    });
    return resolved;
  }
  const int64_t needed = peak({.budget = smallest, .n_call = in_parts ? 1 : n_call});
  std::string message =
      "cache: a prompt of " + std::to_string(n_prompt) +
      (method.needs().replay.any() ? " tokens and its replay need " : " tokens needs ") +
      std::to_string(needed) + " bytes at its peak, " + std::to_string(options_.memory_bytes) +
      " are allowed";
  if (!first) {
    message += " and " + std::to_string(held.live_bytes) +
               " are taken by what was read before; start a new session, or allow more";
  } else if (n_call > 1 && peak({.budget = smallest, .n_call = 1}) < needed) {
    message += "; taken in smaller chunks (`prefill_chunk`) it needs less";
  }
  if (const CacheCost& cost = cache_.cost; cost.slot_bytes > 0) {
    message += "; " + method.traits().spec + "'s state takes " + std::to_string(cost.slot_bytes) +
               " of an entry's " + std::to_string(cost.row_bytes + cost.slot_bytes) + " bytes";
  }
  return Error{.message = message, .code = ErrorCode::kTooLarge};
}

std::optional<ResolvedBudget> BudgetPlan::ResolveReplay(
    int64_t smallest, int64_t largest, int64_t n_call,
    const std::function<bool(const ResolvedBudget&)>& fits) {
  constexpr int64_t kMinCall = 32;
  const auto budget_of = [&](int64_t n) {
    return LargestPassing(smallest, largest, [&](int64_t budget) {
      return fits({.budget = budget, .n_call = n, .n_next = 0});
    });
  };
  const int64_t max = budget_of(std::min(n_call, kMinCall));
  if (max == 0) return std::nullopt;
  for (int64_t n = n_call;; n = std::max(kMinCall, (n + 1) / 2)) {
    const int64_t budget = budget_of(n);
    if (budget >= std::max(smallest, max / 2)) {
      return ResolvedBudget{.budget = budget, .n_call = n, .n_next = 0};
    }
    if (n <= kMinCall) return std::nullopt;
  }
}

int64_t BudgetPlan::NextPromptReserve() const {
  if (!CompressesPrompts() || method_->traits().decisions.WaitsForAllLayers()) return 0;
  return TokensWithinQuarter(/*n_layers=*/1);
}

int64_t BudgetPlan::TokensWithinQuarter(int n_layers) const {
  const int64_t n = int64_t{n_layers} * cache_.cost.n_kv_heads;
  const int64_t token_bytes = cache_.cost.Bytes({.slots = n, .rows = n});
  return std::min(options_.reserve_tokens, options_.memory_bytes / 4 / token_bytes);
}

Result<Reservation> BudgetPlan::Reserve(const CacheContents& held, int64_t n_prompt, int64_t n_call,
                                        int64_t n_generate) const {
  if (Appends(held.live_bytes, n_prompt)) {
    n_generate += n_prompt;
    n_prompt = 0;
  }
  ResolvedBudget resolved = {.budget = progress_.budget, .n_call = 1, .n_next = progress_.n_next};
  // Later generated tokens leave the budget unchanged; the very first one fixes it.
  if (n_prompt > 0 || progress_.n_seen == 0) {
    const int64_t n_first = std::max<int64_t>(1, n_prompt);
    WINNOW_ASSIGN(resolved, Resolve(held, n_first, std::clamp<int64_t>(n_call, 1, n_first)));
  }
  MemoryPlan plan(cache_.cost, method_);
  plan.Start(held.layers, progress_.n_seen, progress_.n_prompt);
  int64_t prefill = plan.Prompt(resolved.budget, n_prompt, resolved.n_call);
  const int64_t rest = plan.bytes();
  int64_t n_slots = plan.n_slots();
  int64_t steady = std::max(rest, plan.Decode(resolved.budget, n_generate));
  n_slots = std::max(n_slots, plan.n_slots());
  if (options_.memory_bytes != 0) {
    // Prefill and Decode refuse tokens that would exceed the limit.
    prefill = std::min(prefill, options_.memory_bytes);
    steady = std::min(steady, options_.memory_bytes);
  }
  return Reservation{.steady_bytes = steady,
                     .prefill_surplus_bytes = std::max<int64_t>(0, prefill - steady),
                     .list_bytes = MaxListBytes(n_slots)};
}

int64_t BudgetPlan::MaxListBytes(int64_t n_slots) const {
  if (method_ == nullptr) return 0;  // there are none until something is evicted
  const int64_t n_heads = int64_t{cache_.cost.n_layers} * cache_.cost.n_kv_heads;
  // Lists shrink if their spare capacity exceeds twice the growth increment (cache/index/growth.h).
  // A text of fewer than 65536 tokens has one high part of positions per head, or two while the
  // list grows.
  constexpr int64_t kHighPartBytes = 32;
  return (n_slots + n_slots / 8 + 96 * n_heads) * cache_.list_bytes_per_slot +
         kHighPartBytes * n_heads * (1 + cache_.capacity / 65536);
}

int64_t BudgetPlan::BytesWith(int64_t live_bytes, int64_t n_tokens) const {
  const int64_t n_added = n_tokens * cache_.cost.n_layers * cache_.cost.n_kv_heads;
  return live_bytes + cache_.cost.Bytes({.slots = n_added, .rows = n_added});
}

Result<void> BudgetPlan::CheckBytes(int64_t peak_bytes, int64_t n_tokens) const {
  if (peak_bytes <= options_.memory_bytes) return {};
  return Error{.message = "cache: " + std::to_string(n_tokens) + " more tokens need " +
                          std::to_string(peak_bytes) + " bytes, " +
                          std::to_string(options_.memory_bytes) + " are allowed",
               .code = ErrorCode::kTooLarge};
}

int64_t BudgetPlan::RemainingTokens(int64_t live_bytes) const {
  if (options_.memory_bytes == 0 || StopsGrowing()) {
    return std::numeric_limits<int64_t>::max();
  }
  const CacheCost& cost = cache_.cost;
  const int64_t n_heads = cost.n_kv_heads;
  // Reserved for the next prompt, in the current layer.
  const int64_t n_left = progress_.n_next * n_heads;
  const int64_t room =
      options_.memory_bytes - live_bytes - cost.Bytes({.slots = n_left, .rows = n_left});
  const int64_t n_all = n_heads * cost.n_layers;
  return std::max<int64_t>(0, room) / cost.Bytes({.slots = n_all, .rows = n_all});
}

}  // namespace winnow::runtime
