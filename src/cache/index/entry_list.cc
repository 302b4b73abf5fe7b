#include "cache/index/entry_list.h"

#include <algorithm>

#include "base/check.h"

namespace winnow::cache {

void EntryList::Assign(std::span<const Position> positions, std::span<const Slot> order) {
  WINNOW_CHECK(order.empty() || order.size() == positions.size());
  *this = {};
  positions_.Append(positions);
  if (order.empty()) {
    slots_.Append(positions.size());
  } else {
    slots_.Assign(order);
    positions_.Materialize();
  }
}

void EntryList::Append(std::span<const Position> positions) {
  slots_.Append(positions.size());
  positions_.Append(positions);
}

void EntryList::Evict(std::span<const Slot> slots, Moves& moves, std::vector<int32_t>& ranks) {
  if (slots.size() == 1) {
    moves.FillHole(size(), slots[0]);
    positions_.Erase(slots_.Erase(slots[0]));
  } else {
    moves.FillHoles(size(), slots);
    slots_.Move(moves, ranks);
    positions_.Keep(ranks);
  }
  // Store both lists from the first eviction on, so that later ones allocate nothing.
  if (!slots_.is_identity()) positions_.Materialize();
}

void EntryList::FindFrom(Position position, std::vector<Slot>& slots) const {
  slots.clear();
  for (size_t rank = size(); rank > 0 && positions_[rank - 1] >= position; --rank) {
    slots.push_back(slots_[rank - 1]);
  }
  std::ranges::sort(slots);
}

void EntryList::CopyPositionsTo(std::span<Position> out) const {
  WINNOW_CHECK(out.size() == size());
  if (slots_.is_identity()) return positions_.CopyTo(out);
  for (size_t rank = 0; rank < size(); ++rank) {
    out[static_cast<size_t>(slots_[rank])] = positions_[rank];
  }
}

void EntryList::ShrinkToFit() {
  slots_.ShrinkToFit();
  positions_.ShrinkToFit();
}

}  // namespace winnow::cache
