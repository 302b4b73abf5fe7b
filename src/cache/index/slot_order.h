#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "cache/index/moves.h"
#include "cache/plan.h"

namespace winnow::cache {

// Slots of a KV head by rank, from the oldest entry to the newest. Until something is evicted the
// slot of an entry is its rank, which takes no memory; afterwards a slot takes 2 bytes, 4 in heads
// with more than 65536 slots.
class SlotOrder {
 public:
  size_t size() const { return n_; }
  bool is_identity() const { return identity_; }
  // Requires: rank < size().
  Slot operator[](size_t rank) const {
    if (identity_) return static_cast<Slot>(rank);
    return wide() ? wide_[rank] : Slot{narrow_[rank]};
  }
  // Replaces all slots. Requires: `order` has each of 0..order.size() - 1 once.
  void Assign(std::span<const Slot> order);
  // Adds the next n slots, for the newest entries.
  void Append(size_t n);
  // Drops the entry of a slot and returns its rank; the entry of the last slot moves into the slot.
  // Cost: O(size()), vectorized. Requires: the slot exists.
  size_t Erase(Slot slot);
  // Moves slots as `moves` says. Fills `ranks` with the ranks of the entries that stay.
  void Move(const Moves& moves, std::vector<int32_t>& ranks);

  // All slots by rank. Requires: out.size() == size().
  void CopyTo(std::span<Slot> out) const;
  // The inverse: the rank of each slot, [slot]. Requires: out.size() == size().
  void CopyRanksTo(std::span<int32_t> out) const;

  void ShrinkToFit();
  int64_t allocated_bytes() const;

 private:
  static constexpr size_t kMaxNarrow = size_t{1} << 16;
  bool wide() const { return !wide_.empty(); }
  // Starts to store slots one by one.
  void List();
  void Widen(size_t n_more);
  template <class T>
  size_t EraseFrom(std::vector<T>& slots, Slot slot);
  // Keeps the entries of `ranks` and moves their slots: in place, or from this list into `slots`.
  template <class T>
  static void MoveFrom(const Moves& moves, std::span<const int32_t> ranks, std::vector<T>& slots);
  template <class T>
  void MoveInto(const Moves& moves, std::span<const int32_t> ranks, std::vector<T>& slots) const;
  // Calls take(slots) with the list in use. Requires: !identity_.
  template <class Take>
  decltype(auto) WithSlots(Take take) const {
    return wide() ? take(std::span<const Slot>(wide_)) : take(std::span<const uint16_t>(narrow_));
  }

  size_t n_ = 0;
  bool identity_ = true;
  std::vector<uint16_t> narrow_;  // [rank]; one of the two lists is used
  std::vector<Slot> wide_;
};

}  // namespace winnow::cache
