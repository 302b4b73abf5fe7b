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

// Slots and text positions of a KV head's entries, by rank from the oldest entry to the newest.
// Takes no memory until something is evicted; then 4 bytes per entry, 6 in heads with more than
// 65536 entries.
class EntryList {
 public:
  // The most bytes an entry takes in a head of up to `capacity` entries.
  static int64_t MaxBytesPerEntry(int64_t capacity) { return capacity <= int64_t{1} << 16 ? 4 : 6; }

  size_t size() const { return positions_.size(); }
  bool empty() const { return size() == 0; }
  const SlotOrder& slots() const { return slots_; }
  const PositionList& positions() const { return positions_; }
  // Position of the oldest entry; `none` if there is none.
  Position oldest(Position none) const { return empty() ? none : positions_[0]; }

  // Replaces all entries with those of another list; an empty `order` means that slots are ranks.
  // Requires: positions ascend; `order` has each slot once.
  void Assign(std::span<const Position> positions, std::span<const Slot> order);
  // Adds entries in the slots from size() on. Requires: positions ascend, and lie after the newest
  // entry's.
  void Append(std::span<const Position> positions);
  // Drops slots, each named once; `moves` (out) says which of the last slots' entries move into the
  // holes. `ranks` is a buffer. Requires: the slots exist.
  void Evict(std::span<const Slot> slots, Moves& moves, std::vector<int32_t>& ranks);
  // Finds the slots of the entries at `position` or later, ascending.
  void FindFrom(Position position, std::vector<Slot>& slots) const;

  // Whether slot i holds the entry at position i.
  bool slots_are_positions() const {
    return slots_.is_identity() && !positions_.is_stored() && oldest(0) == 0;
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
