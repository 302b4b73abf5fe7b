#include "cache/index/layer_index.h"

#include <algorithm>
#include <utility>

#include "base/check.h"

namespace winnow::cache {

void LayerIndex::Assign(std::vector<EntryList> lists) {
  WINNOW_CHECK(lists.size() == 1 || lists.size() == n_heads_);
  ++version_;
  lists_ = std::move(lists);
}

void LayerIndex::Append(std::span<const Position> positions) {
  ++version_;
  for (EntryList& list : lists_) list.Append(positions);
}

void LayerIndex::PrepareFor(const Plan& plan) {
  WINNOW_CHECK(plan.heads.size() == n_heads_);
  if (!shared() || n_heads_ == 1) return;
  const bool same = std::ranges::all_of(
      plan.heads, [&](const HeadPlan& head) { return head.evict == plan.heads[0].evict; });
  if (!same) lists_.resize(n_heads_, EntryList(lists_[0]));
}

void LayerIndex::Evict(size_t list, std::span<const Slot> slots, Moves& moves,
                       std::vector<int32_t>& ranks) {
  ++version_;
  lists_[list].Evict(slots, moves, ranks);
}

void LayerIndex::ShareIfEmpty() {
  if (std::ranges::all_of(lists_, &EntryList::empty)) lists_.resize(1);
}

int64_t LayerIndex::allocated_bytes() const {
  int64_t bytes = 0;
  for (const EntryList& list : lists_) bytes += list.allocated_bytes();
  return bytes;
}

int64_t LayerIndex::allocated_bytes(size_t head) const {
  if (!shared()) return lists_[head].allocated_bytes();
  const int64_t bytes = lists_[0].allocated_bytes();
  const auto n = static_cast<int64_t>(n_heads_);
  return bytes / n + (head == 0 ? bytes % n : 0);
}

}  // namespace winnow::cache
