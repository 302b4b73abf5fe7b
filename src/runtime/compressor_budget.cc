// How large a compressor's budget is, and what it takes in bytes.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>

#include "runtime/compressor.h"
#include "runtime/invariants.h"

namespace winnow::runtime {
namespace {

using compression::Phase;

// Tokens of a text that never ends.
constexpr int64_t kEndless = int64_t{1} << 40;

int64_t LongestHead(const cache::Cache& cache) {
  const cache::CacheShape& shape = cache.config().shape;
  int64_t longest = 0;
  for (int layer = 0; layer < shape.n_layers; ++layer) {
    for (int head = 0; head < shape.layer(layer).n_kv_heads; ++head) {
      longest = std::max(longest, cache.n_slots(layer, head));
    }
  }
  return longest;
}

// Copied to `held`, [layer].
void ReadHeld(const cache::Cache& cache, std::vector<Entries>& held) {
  if (!cache.config().shape.alike()) {
    held.assign(1, {.slots = cache.n_slots(0, 0), .rows = cache.n_rows(0, 0)});  // as MakeCost
    return;
  }
  held.resize(static_cast<size_t>(cache.config().shape.n_layers));
  for (size_t layer = 0; layer < held.size(); ++layer) {
    held[layer] = Compressor::EntriesHeld(cache, static_cast<int>(layer));
  }
}

// The largest number in [least, most] that passes, if those below one that passes do; 0: none.
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

// "0.05": as few digits as tell it apart.
std::string Shortest(double number) {
  char digits[32];
  return {digits, std::to_chars(digits, digits + sizeof(digits), number).ptr};
}

}  // namespace

CacheCost Compressor::MakeCost(const cache::Cache& cache) {
  const cache::CacheConfig& config = cache.config();
  // Where layers differ there is no method, and every head holds every token: they count as one
  // head whose rows are as large as those of a token in all layers.
  if (!config.shape.alike()) {
    return {.n_layers = 1, .n_kv_heads = 1, .row_bytes = cache.bytes_per_token()};
  }
  const int64_t n_numbers =
      config.shape.n_layers * (config.state.n_layer_numbers +
                               int64_t{config.state.n_head_numbers} * config.shape.n_kv_heads);
  return {.n_layers = config.shape.n_layers,
          .n_kv_heads = config.shape.n_kv_heads,
          .row_bytes = cache.bytes_per_slot(0),
          .slot_bytes = cache.state_bytes_per_slot(),
          .fixed_bytes = static_cast<int64_t>(sizeof(double)) * n_numbers};
}

Entries Compressor::EntriesHeld(const cache::Cache& cache, int layer) {
  Entries held;
  for (int head = 0; head < cache.config().shape.layer(layer).n_kv_heads; ++head) {
    held.slots += cache.n_slots(layer, head);
    held.rows += cache.n_rows(layer, head);
  }
  return held;
}

bool Compressor::HoldsBudget(const cache::Cache& cache) const {
  if (!Compresses(Phase::kDecode)) return false;
  const compression::Method& method = *options_.method;
  const int n_layers = cache.config().shape.n_layers;
  return method.DecodeSizes(method.traits().min_budget, kEndless, kEndless, n_layers).total_slots <
         kEndless;
}

bool Compressor::Sizes(const cache::Cache& cache) const {
  if (!Compresses(Phase::kPrefill)) return false;
  const compression::Method& method = *options_.method;
  return method.TotalSlots(method.traits().min_budget, kEndless, cache.config().shape.n_layers) <
         kEndless;
}

int64_t Compressor::SmallestBudget() const {
  if (budget_ != 0) return budget_;
  if (options_.size != 0) return options_.size;
  return active() ? options_.method->traits().min_budget : 0;
}

bool Compressor::Streams(const cache::Cache& cache, int64_t budget) const {
  const cache::PositionMode positions = cache.config().positions;
  if (positions == cache::PositionMode::kOriginal || positions == cache::PositionMode::kText ||
      !Compresses(Phase::kDecode)) {
    return false;
  }
  const int64_t n_call = std::max<int64_t>(1, options_.prefill_chunk);
  return n_call <= cache.capacity() - options_.method->MaxSlots(budget, cache.capacity());
}

int64_t Compressor::LargestStreamingBudget(const cache::Cache& cache) const {
  if (!active()) return 0;
  return LargestPassing(options_.method->traits().min_budget, cache.capacity(),
                        [&](int64_t budget) { return Streams(cache, budget); });
}

Result<int64_t> Compressor::BeginPrompt(const cache::Cache& cache, int64_t n_prompt,
                                        int64_t n_call) {
  WINNOW_ASSIGN(const ResolvedBudget resolved, CheckPrompt(cache, n_prompt, n_call));
  budget_ = resolved.budget;
  n_next_ = resolved.n_next;
  MemoryPlan plan(MakeCost(cache), options_.method.get());
  ReadHeld(cache, held_);
  plan.Start(held_, n_seen_, n_prompt_);
  planned_peak_ = plan.Prompt(budget_, n_prompt, resolved.n_call);
  return resolved.n_call;
}

Result<Compressor::ResolvedBudget> Compressor::CheckPrompt(const cache::Cache& cache,
                                                           int64_t n_prompt, int64_t n_call) const {
  WINNOW_ASSIGN(const ResolvedBudget resolved,
                ResolveBudget(cache, n_prompt, std::min(n_call, n_prompt)));
  if (LongestHead(cache) + n_prompt > cache.capacity() && !Streams(cache, resolved.budget)) {
    return Error{"cache: a budget of " + std::to_string(resolved.budget) +
                 " slots per KV head fills the context of " + std::to_string(cache.capacity()) +
                 " tokens before anything is evicted; longer texts need " +
                 std::to_string(LargestStreamingBudget(cache)) + " or less"};
  }
  return resolved;
}

Result<Compressor::ResolvedBudget> Compressor::ResolveBudget(const cache::Cache& cache,
                                                             int64_t n_prompt,
                                                             int64_t n_call) const {
  if (options_.memory_bytes != 0 && active()) return ResolveMemoryLimit(cache, n_prompt, n_call);
  if (options_.memory_bytes != 0) WINNOW_TRY(CheckBytes(BytesWith(cache, n_prompt), n_prompt));
  ResolvedBudget resolved = {.budget = options_.size != 0 ? options_.size : budget_,
                             .n_call = n_call};
  if (options_.ratio != 0) {
    WINNOW_ASSIGN(resolved.budget, BudgetFromRatio(n_seen_ + n_prompt));
  }
  return resolved;
}

Result<int64_t> Compressor::BudgetFromRatio(int64_t n_tokens) const {
  const int64_t smallest = active() ? options_.method->traits().min_budget : 1;
  const auto share =
      static_cast<int64_t>(std::floor(options_.ratio * static_cast<double>(n_tokens)));
  if (share >= smallest) return share;
  return Error{"cache budget: a share of " + Shortest(options_.ratio) + " of " +
               std::to_string(n_tokens) + " tokens is " + std::to_string(share) +
               " slots per KV head, " + (active() ? options_.method->traits().spec : "full") +
               " needs at least " + std::to_string(smallest)};
}

Result<Compressor::ResolvedBudget> Compressor::ResolveMemoryLimit(const cache::Cache& cache,
                                                                  int64_t n_prompt,
                                                                  int64_t n_call) const {
  const compression::Method& method = *options_.method;
  const int64_t smallest = method.traits().min_budget;
  // Where a text may be longer than the cache, it stays so.
  const int64_t largest =
      Streams(cache, smallest) ? LargestStreamingBudget(cache) : cache.capacity();
  int64_t n_generate = 0;
  if (HoldsBudget(cache)) {
    n_generate = cache.capacity();  // a prompt shorter than the budget grows to it
  } else if (method.traits().needs_budget || Sizes(cache)) {
    n_generate = TokensWithinQuarter(cache, cache.config().shape.n_layers);
  }
  MemoryPlan plan(MakeCost(cache), &method);
  std::vector<Entries> held;
  ReadHeld(cache, held);
  const auto peak = [&](const ResolvedBudget& resolved) {
    plan.Start(held, n_seen_, n_prompt_);
    const int64_t prompt = plan.Prompt(resolved.budget, n_prompt, resolved.n_call);
    const int64_t decode = plan.Decode(resolved.budget, n_generate);
    return std::max(
        {prompt, decode, plan.Prompt(resolved.budget, resolved.n_next, resolved.n_next)});
  };
  const auto fits = [&](const ResolvedBudget& resolved) {
    return peak(resolved) <= options_.memory_bytes;
  };
  const bool first = LongestHead(cache) == 0;
  const bool in_parts = !first && Compresses(Phase::kPrefill);
  if (first && needs_.replay.any()) {
    if (const auto parts = SettleReplay(smallest, largest, n_call, fits)) return *parts;
  }
  // A later prompt that would cost more than half of the budget is rather taken in parts.
  const int64_t enough = in_parts ? std::max(smallest, budget_ / 2) : smallest;
  for (const int64_t n_next : {NextCall(cache), int64_t{0}}) {
    ResolvedBudget resolved = {.budget = 0, .n_call = n_call, .n_next = n_next};
    const int64_t whole = LargestPassing(smallest, largest, [&](int64_t budget) {
      resolved.budget = budget;
      return fits(resolved);
    });
    if (whole >= enough) return ResolvedBudget{.budget = whole, .n_call = n_call, .n_next = n_next};
    if (!in_parts) continue;
    // As much of the present budget as there is room for.
    resolved.n_call = 1;
    const int64_t budget = LargestPassing(smallest, std::max(smallest, budget_), [&](int64_t n) {
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
  std::string message = "cache: a prompt of " + std::to_string(n_prompt) + " tokens needs " +
                        std::to_string(needed) + " bytes at its peak, " +
                        std::to_string(options_.memory_bytes) + " are allowed";
  if (!first) {
    message += " and " + std::to_string(cache.live_bytes()) +
               " are taken by what was read before; start anew, or allow more";
  } else if (n_call > 1 && peak({.budget = smallest, .n_call = 1}) < needed) {
    message += "; taken in smaller chunks (`prefill_chunk`) it needs less";
  }
  return Error{.message = message, .code = ErrorCode::kTooLarge};
}

std::optional<Compressor::ResolvedBudget> Compressor::SettleReplay(
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

int64_t Compressor::NextCall(const cache::Cache& cache) const {
  if (!Sizes(cache) || options_.method->traits().waits_for_all_layers) return 0;
  return TokensWithinQuarter(cache, /*n_layers=*/1);
}

int64_t Compressor::TokensWithinQuarter(const cache::Cache& cache, int n_layers) const {
  const int64_t n = int64_t{n_layers} * cache.config().shape.n_kv_heads;
  const int64_t token_bytes = MakeCost(cache).Bytes({.slots = n, .rows = n});
  return std::min(options_.reserve_tokens, options_.memory_bytes / 4 / token_bytes);
}

Result<Reservation> Compressor::Plan(const cache::Cache& cache, int64_t n_prompt, int64_t n_call,
                                     int64_t n_generate) const {
  ResolvedBudget resolved = {.budget = budget_, .n_call = 1, .n_next = n_next_};
  // Tokens generated after others leave the budget as it is; the first of all settles it.
  if (n_prompt > 0 || n_seen_ == 0) {
    const int64_t n_first = std::max<int64_t>(1, n_prompt);
    WINNOW_ASSIGN(resolved, ResolveBudget(cache, n_first, std::clamp<int64_t>(n_call, 1, n_first)));
  }
  MemoryPlan plan(MakeCost(cache), options_.method.get());
  std::vector<Entries> held;
  ReadHeld(cache, held);
  plan.Start(held, n_seen_, n_prompt_);
  int64_t prefill = plan.Prompt(resolved.budget, n_prompt, resolved.n_call);
  const int64_t rest = plan.bytes();
  int64_t n_slots = plan.n_slots();
  int64_t steady = std::max(rest, plan.Decode(resolved.budget, n_generate));
  n_slots = std::max(n_slots, plan.n_slots());
  if (options_.memory_bytes != 0) {
    // What would be more is refused when it comes to it.
    prefill = std::min(prefill, options_.memory_bytes);
    steady = std::min(steady, options_.memory_bytes);
  }
  return Reservation{.steady_bytes = steady,
                     .prefill_surplus_bytes = std::max<int64_t>(0, prefill - steady),
                     .list_bytes = MaxListBytes(cache, n_slots)};
}

int64_t Compressor::MaxListBytes(const cache::Cache& cache, int64_t n_slots) const {
  if (!active()) return 0;  // as long as nothing was evicted there are none
  const cache::CacheShape& shape = cache.config().shape;
  const int64_t n_heads = int64_t{shape.n_layers} * shape.n_kv_heads;
  // Lists shrink where more is empty than growing leaves twice over (cache/index/growth.h). A text
  // of less than 65536 tokens has one high part of positions in a head, or two in the making.
  constexpr int64_t kHighPartBytes = 32;
  return (n_slots + n_slots / 8 + 96 * n_heads) * cache.max_list_bytes_per_slot() +
         kHighPartBytes * n_heads * (1 + cache.capacity() / 65536);
}

int64_t Compressor::BytesWith(const cache::Cache& cache, int64_t n_tokens) {
  const CacheCost cost = MakeCost(cache);
  const int64_t n_added = n_tokens * cost.n_layers * cost.n_kv_heads;
  return cache.live_bytes() + cost.Bytes({.slots = n_added, .rows = n_added});
}

Result<void> Compressor::CheckBytes(int64_t peak_bytes, int64_t n_call) const {
  if (peak_bytes <= options_.memory_bytes) return {};
  return Error{.message = "cache: " + std::to_string(n_call) + " more tokens need " +
                          std::to_string(peak_bytes) + " bytes, " +
                          std::to_string(options_.memory_bytes) + " are allowed",
               .code = ErrorCode::kTooLarge};
}

Result<void> Compressor::CheckStep(const cache::Cache& cache) {
  if (options_.memory_bytes == 0 && !kChecksInvariants) return {};
  planned_peak_ = BytesWith(cache, 1);
  if (Compresses(Phase::kDecode)) {
    if (!step_plan_) step_plan_.emplace(MakeCost(cache), options_.method.get());
    ReadHeld(cache, held_);
    step_plan_->Start(held_, n_seen_, n_prompt_);
    planned_peak_ = std::min(planned_peak_, step_plan_->Decode(budget_, 1));
  }
  if (options_.memory_bytes == 0) return {};
  return CheckBytes(planned_peak_, 1);
}

int64_t Compressor::RemainingTokens(const cache::Cache& cache) const {
  if (options_.memory_bytes == 0 || HoldsBudget(cache)) {
    return std::numeric_limits<int64_t>::max();
  }
  const CacheCost cost = MakeCost(cache);
  const int64_t n_heads = cost.n_kv_heads;
  // Left for the next prompt, in the layer at work.
  const int64_t n_left = n_next_ * n_heads;
  const int64_t room =
      options_.memory_bytes - cache.live_bytes() - cost.Bytes({.slots = n_left, .rows = n_left});
  const int64_t n_all = n_heads * cost.n_layers;
  return std::max<int64_t>(0, room) / cost.Bytes({.slots = n_all, .rows = n_all});
}

}  // namespace winnow::runtime
