#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "cache/index/entry_list.h"
#include "cache/plan.h"

namespace winnow::cache {

// The entries of a layer's KV heads. Heads that have kept the same entries so far share one list,
// as all do until something is evicted, and with methods that evict by layer (StreamingLLM, TOVA).
class LayerIndex {
 public:
  explicit LayerIndex(size_t n_heads) : n_heads_(n_heads), lists_(1) {}

  size_t n_heads() const { return n_heads_; }
  // Whether one list serves all heads; otherwise each has its own.
  bool shared() const { return lists_.size() == 1; }
  size_t ListNumber(size_t head) const { return shared() ? 0 : head; }
  const EntryList& head(size_t head) const { return lists_[ListNumber(head)]; }
  std::span<const EntryList> lists() const { return lists_; }
  // Changes whenever a list changes.
  uint64_t version() const { return version_; }

  // Replaces the lists. Requires: one list, or one per head.
  void Assign(std::vector<EntryList> lists);
  void Append(std::span<const Position> positions);
  // Call before evicting: gives each head a list of its own unless all evict the same slots in the
  // same order.
  void PrepareFor(const Plan& plan);
  // As EntryList::Evict, once per list.
  void Evict(size_t list, std::span<const Slot> slots, Moves& moves, std::vector<int32_t>& ranks);
  // Call after evictions: if all heads are empty, they share a list again.
  void ShareIfEmpty();

  // Frees unused memory of a head's list.
  void ShrinkToFit(size_t head) { lists_[ListNumber(head)].ShrinkToFit(); }
  int64_t allocated_bytes() const;
  // The head's part of its list: heads that share a list have parts that add up to it.
  int64_t allocated_bytes(size_t head) const;

 private:
  size_t n_heads_;
  std::vector<EntryList> lists_;  // one, or [kv_head]
  uint64_t version_ = 0;
};

}  // namespace winnow::cache
