#include "compression/select/best_of_heads.h"

#include <algorithm>

#include "compression/numbers.h"

namespace winnow::compression::select {
namespace {

struct Entry {
  double score = 0;
  Position position = 0;
  uint32_t head = 0;  // index in `heads`
  int32_t rank = 0;
};

bool Better(const Entry& a, const Entry& b) {
  if (ScoreLess(a.score, b.score)) return false;
  if (ScoreLess(b.score, a.score)) return true;
  return a.position != b.position ? a.position > b.position : a.head < b.head;
}

}  // namespace

void KeepBest(const LayerCall& call, std::span<const ScoredHead> heads, int64_t n_keep,
              PlanList& plans) {
  std::vector<Entry> entries;
  for (size_t i = 0; i < heads.size(); ++i) {
    const ScoredHead& head = heads[i];
    const std::span<const Slot> order = call.cache.order(head.layer, head.kv_head);
    const std::span<const Position> positions = call.cache.positions(head.layer, head.kv_head);
    for (size_t j = 0; j < head.scores.size(); ++j) {
      const auto rank = static_cast<size_t>(head.region.begin) + j;
      entries.push_back({.score = head.scores[j],
                         .position = positions[static_cast<size_t>(order[rank])],
                         .head = static_cast<uint32_t>(i),
                         .rank = static_cast<int32_t>(rank)});
    }
  }
  if (n_keep >= static_cast<int64_t>(entries.size())) return;
  const auto first_evicted = entries.begin() + std::max<int64_t>(n_keep, 0);
  std::nth_element(entries.begin(), first_evicted, entries.end(), Better);
  std::sort(first_evicted, entries.end(), [](const Entry& a, const Entry& b) {
    return a.head != b.head ? a.head < b.head : a.rank < b.rank;
  });
  Plan* plan = nullptr;
  for (auto entry = first_evicted; entry != entries.end(); ++entry) {
    const ScoredHead& head = heads[entry->head];
    if (plan == nullptr || plan->layer != head.layer) {
      plan = &plans.Add(head.layer, call.n_kv_heads());
    }
    const Slot slot = call.cache.order(head.layer, head.kv_head)[static_cast<size_t>(entry->rank)];
    plan->heads[static_cast<size_t>(head.kv_head)].evict.push_back(slot);
  }
}

}  // namespace winnow::compression::select
