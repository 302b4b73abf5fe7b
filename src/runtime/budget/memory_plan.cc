#include "runtime/budget/memory_plan.h"

#include <algorithm>
#include <limits>

#include "base/check.h"

namespace winnow::runtime {
namespace {

using compression::Phase;

constexpr int64_t kMax = std::numeric_limits<int64_t>::max();

// Both saturate: an unlimited text under a method that lets the cache grow exceeds any memory.
int64_t Product(int64_t a, int64_t b) {
  int64_t product = 0;
  return __builtin_mul_overflow(a, b, &product) ? kMax : product;
}
int64_t Sum(int64_t a, int64_t b) {
  int64_t sum = 0;
  return __builtin_add_overflow(a, b, &sum) ? kMax : sum;
}

Entries operator+(const Entries& a, const Entries& b) {
  return {.slots = Sum(a.slots, b.slots), .rows = Sum(a.rows, b.rows)};
}
Entries Min(const Entries& a, const Entries& b) {
  return {.slots = std::min(a.slots, b.slots), .rows = std::min(a.rows, b.rows)};
}

}  // namespace

int64_t CacheCost::Bytes(const Entries& entries) const {
  return Sum(Product(entries.rows, row_bytes), Product(entries.slots, slot_bytes));
}

MemoryPlan::MemoryPlan(const CacheCost& cost, const compression::Method* method)
    : cost_(cost),
      method_(method),
      held_(static_cast<size_t>(cost.n_layers)),
      total_({.slots = kMax, .rows = kMax}) {}

int64_t MemoryPlan::bytes() const { return Sum(cost_.fixed_bytes, cost_.Bytes(Held())); }

void MemoryPlan::Start(std::span<const Entries> held, int64_t n_seen, int64_t n_prompt) {
  WINNOW_CHECK(std::ssize(held) == cost_.n_layers);
  std::copy(held.begin(), held.end(), held_.begin());
  total_ = {.slots = kMax, .rows = kMax};
  n_seen_ = n_seen;
  n_prompt_ = n_prompt;
}

Entries MemoryPlan::ForHeads(int64_t slots, int64_t rows) const {
  return {.slots = Product(slots, cost_.n_kv_heads), .rows = Product(rows, cost_.n_kv_heads)};
}

Entries MemoryPlan::ForLayers(const Entries& layer) const {
  return {.slots = Product(layer.slots, cost_.n_layers),
          .rows = Product(layer.rows, cost_.n_layers)};
}

Entries MemoryPlan::Held() const {
  Entries sum;
  for (const Entries& layer : held_) sum = sum + layer;
  return Min(sum, total_);
}

int64_t MemoryPlan::Call(Phase phase, int64_t budget, int64_t n) {
  const bool prefill = phase == Phase::kPrefill;
  n_seen_ = Sum(n_seen_, n);
  if (prefill) n_prompt_ = n_seen_;
  const int n_layers = cost_.n_layers;
  const Entries added = ForHeads(n, n);  // to each layer
  const Entries added_in_all = ForHeads(Product(n, n_layers), Product(n, n_layers));
  if (!Evicts(phase)) {
    for (Entries& layer : held_) layer = layer + added;
    total_ = total_ + added_in_all;
    return bytes();
  }
  const compression::Method::Sizes sizes = SizesAfter(phase, budget);
  const Entries total = ForHeads(sizes.total_slots, sizes.total_rows);
  const bool waits = prefill && method_->traits().decisions.WaitsForAllLayers();
  // A layer also holds the entries of a replay until the method has seen them.
  const int64_t n_replay = waits ? method_->needs().replay.MaxTokens(n) : 0;
  int64_t peak = waits ? cost_.Bytes(Held() + added_in_all + ForHeads(n_replay, n_replay)) : 0;
  Entries done;  // held by the layers before the current one
  Entries left;  // held by the others, as before the call
  for (const Entries& layer : held_) left = left + layer;
  for (int i = 0; i < n_layers; ++i) {
    Entries& layer = held_[static_cast<size_t>(i)];
    if (!waits) {
      peak = std::max(peak, cost_.Bytes(Min(done, total) + Min(left, total_) + added));
    }
    left = {.slots = left.slots - layer.slots, .rows = left.rows - layer.rows};
    layer = Min(layer + added, MaxOfLayer(phase, sizes, i, budget));
    done = done + layer;
  }
  total_ = total;
  return Sum(cost_.fixed_bytes, peak);
}

bool MemoryPlan::Evicts(Phase phase) const {
  return method_ != nullptr && method_->traits().decisions.Evicts(phase);
}

compression::Method::Sizes MemoryPlan::SizesAfter(Phase phase, int64_t budget) const {
  if (phase == Phase::kDecode) {
    return method_->DecodeSizes(budget, n_prompt_, n_seen_, cost_.n_layers);
  }
  return {.total_slots = method_->TotalSlots(budget, n_seen_, cost_.n_layers),
          .total_rows = method_->TotalRows(budget, n_seen_, cost_.n_layers)};
}

Entries MemoryPlan::MaxOfLayer(Phase phase, const compression::Method::Sizes& sizes, int layer,
                               int64_t budget) const {
  if (phase == Phase::kDecode) return ForHeads(sizes.layer_slots, sizes.layer_rows);
  return ForHeads(method_->LayerSlots(layer, cost_.n_layers, budget, n_seen_),
                  method_->LayerRows(layer, cost_.n_layers, budget, n_seen_));
}

bool MemoryPlan::KeepsSizes(Phase phase, int64_t budget, int64_t n_more) const {
  const auto within = [&](const Entries& held, const Entries& max, int64_t n) {
    const Entries limit = max + ForHeads(n, n);
    return held.slots <= limit.slots && held.rows <= limit.rows;
  };
  const compression::Method::Sizes sizes = SizesAfter(phase, budget);
  for (int i = 0; i < cost_.n_layers; ++i) {
    const Entries max = MaxOfLayer(phase, sizes, i, budget);
    if (!within(held_[static_cast<size_t>(i)], max, n_more)) return false;
  }
  const Entries held = Held();
  const int64_t n_more_in_all = Product(n_more, cost_.n_layers);
  if (!within(held, ForHeads(sizes.total_slots, sizes.total_rows), n_more_in_all)) return false;
  // Generated tokens that are not evicted are added to the budget.
  if (budget == 0 || !method_->traits().budget.held) return true;
  return held.rows <=
         Product(Sum(Product(budget, cost_.n_layers), n_more_in_all), cost_.n_kv_heads);
}

int64_t MemoryPlan::Prompt(int64_t budget, int64_t n, int64_t n_call) {
  int64_t peak = bytes();
  for (int64_t first = 0; first < n; first += n_call) {
    peak = std::max(peak, Call(Phase::kPrefill, budget, std::min(n_call, n - first)));
  }
  return peak;
}

int64_t MemoryPlan::Decode(int64_t budget, int64_t n) {
  if (n == 0) return bytes();
  if (!Evicts(Phase::kDecode)) return Call(Phase::kDecode, budget, n);
  // The first token brings the cache to its size, whatever the prompt left in it.
  const int64_t first = Call(Phase::kDecode, budget, 1);
  const int64_t n_more = n - 1;
  if (n_more == 0) return first;
  const int n_layers = cost_.n_layers;
  const Entries before = Held();
  n_seen_ = Sum(n_seen_, n_more);
  const compression::Method::Sizes sizes = SizesAfter(Phase::kDecode, budget);
  const Entries layer_max = ForHeads(sizes.layer_slots, sizes.layer_rows);
  total_ = ForHeads(sizes.total_slots, sizes.total_rows);
  // Only the current layer exceeds its size, and each layer gains at most one token.
  const Entries one = ForHeads(1, 1);
  const Entries one_each = ForHeads(n_layers, n_layers);
  const Entries max = Min(ForLayers(layer_max) + one,
                          Min(total_ + one_each, before + ForHeads(Product(n_more, n_layers),
                                                                   Product(n_more, n_layers))));
  for (Entries& layer : held_) layer = Min(layer + ForHeads(n_more, n_more), layer_max);
  return std::max(first, Sum(cost_.fixed_bytes, cost_.Bytes(max)));
}

}  // namespace winnow::runtime
