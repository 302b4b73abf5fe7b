#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "cache/index/moves.h"
#include "cache/index/position_list.h"
#include "cache/index/slot_order.h"
#include "cache/plan.h"

namespace winnow::cache {

// Which entry is where in a KV head: slot and text position by rank, from the oldest entry to the
// newest. Nothing of it takes memory until something is evicted; then an entry takes 4 bytes, 6 in
// heads with more than 65536 of them.
class EntryList {
 public:
  // Bytes an entry takes at most in a head of up to `capacity` entries.
  static int64_t MaxBytesPerEntry(int64_t capacity) { return capacity <= int64_t{1} << 16 ? 4 : 6; }

  size_t size() const { return positions_.size(); }
  bool empty() const { return size() == 0; }
  const SlotOrder& slots() const { return slots_; }
  const PositionList& positions() const { return positions_; }
  // Position of the oldest entry; `none` if there is none.
  Position oldest(Position none) const { return empty() ? none : positions_[0]; }

  // Entries take the place of all there were, as another list held them; `order` is empty where
  // slots are ranks. Requires: positions ascend; the order has each slot once.
  void Assign(std::span<const Position> positions, std::span<const Slot> order);
  // New entries in the slots from size() on. Requires: positions ascend, beyond the newest one.
  void Append(std::span<const Position> positions);
  // Drops slots, each named once; the entries of the last slots move into the holes as `moves`
  // (out) says. `ranks` is working memory. Requires: the slots are there.
  void Evict(std::span<const Slot> slots, Moves& moves, std::vector<int32_t>& ranks);
  // Slots of the entries at `position` or after it, ascending.
  void FindFrom(Position position, std::vector<Slot>& slots) const;

  // Whether slot i holds the entry at position i.
  bool slots_are_positions() const {
    return slots_.is_identity() && !positions_.has_gaps() && oldest(0) == 0;
  }
  // Positions by slot. Requires: out.size() == size().
  void CopyPositionsTo(std::span<Position> out) const;

  void ShrinkToFit();
  int64_t allocated_bytes() const {
    return slots_.allocated_bytes() + positions_.allocated_bytes();
  }

 private:
  SlotOrder slots_;
  PositionList positions_;
};

}  // namespace winnow::cache
