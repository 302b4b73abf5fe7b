#include "cache/index/slot_order.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "cache/index/growth.h"

namespace winnow::cache {
namespace {

// Searches in blocks without branches, so that the compiler vectorizes the comparisons.
template <class T>
size_t Find(std::span<const T> slots, T slot) {
  constexpr size_t kBlock = 64;
  size_t first = 0;
  for (; first + kBlock <= slots.size(); first += kBlock) {
    const T* block = slots.data() + first;
    T any = 0;
    for (size_t i = 0; i < kBlock; ++i) any = static_cast<T>(any | (block[i] == slot ? 1 : 0));
    if (any != 0) break;
  }
  const auto rest = slots.subspan(first);
  return first + static_cast<size_t>(std::ranges::find(rest, slot) - rest.begin());
}

}  // namespace

void SlotOrder::List() {
  if (!identity_) return;
  identity_ = false;
  if (n_ > kMaxNarrow) {
    GrowBy(wide_, n_);
    wide_.resize(n_);
    std::iota(wide_.begin(), wide_.end(), Slot{0});
  } else {
    GrowBy(narrow_, n_);
    narrow_.resize(n_);
    std::iota(narrow_.begin(), narrow_.end(), uint16_t{0});
  }
}

void SlotOrder::Assign(std::span<const Slot> order) {
  *this = {};
  n_ = order.size();
  List();
  for (size_t rank = 0; rank < n_; ++rank) {
    if (wide()) {
      wide_[rank] = order[rank];
    } else {
      narrow_[rank] = static_cast<uint16_t>(order[rank]);
    }
  }
}

void SlotOrder::Widen(size_t n_more) {
  GrowBy(wide_, n_ + n_more);
  wide_.assign(narrow_.begin(), narrow_.end());
  narrow_.clear();
  narrow_.shrink_to_fit();
}

void SlotOrder::Append(size_t n) {
  if (!identity_) {
    if (!wide() && n_ + n > kMaxNarrow) Widen(n);
    if (wide()) {
      GrowBy(wide_, n);
      for (size_t i = 0; i < n; ++i) wide_.push_back(static_cast<Slot>(n_ + i));
    } else {
      GrowBy(narrow_, n);
      for (size_t i = 0; i < n; ++i) narrow_.push_back(static_cast<uint16_t>(n_ + i));
    }
  }
  n_ += n;
}

template <class T>
size_t SlotOrder::EraseFrom(std::vector<T>& slots, Slot slot) {
  const auto last = static_cast<T>(n_ - 1);
  const auto hole = static_cast<T>(slot);
  const size_t rank = Find(std::span<const T>(slots), hole);
  if (hole != last) {
    // The last slot nearly always holds the newest entry.
    const size_t mover = slots.back() == last ? n_ - 1 : Find(std::span<const T>(slots), last);
    slots[mover] = hole;
  }
  slots.erase(slots.begin() + static_cast<ptrdiff_t>(rank));
  return rank;
}

size_t SlotOrder::Erase(Slot slot) {
  WINNOW_CHECK(slot >= 0 && static_cast<size_t>(slot) < n_);
  auto rank = static_cast<size_t>(slot);
  if (!identity_ || rank + 1 != n_) {
    List();
    rank = wide() ? EraseFrom(wide_, slot) : EraseFrom(narrow_, slot);
  }
  --n_;
  if (n_ == 0) *this = {};
  return rank;
}

void SlotOrder::Move(const Moves& moves, std::vector<int32_t>& ranks) {
  WINNOW_CHECK(moves.place_of.size() == n_);
  ranks.clear();
  bool in_place = true;
  for (size_t rank = 0; rank < n_; ++rank) {
    const Slot place = moves.place_of[static_cast<size_t>((*this)[rank])];
    if (place == kDropped) continue;
    in_place &= static_cast<size_t>(place) == ranks.size();
    ranks.push_back(static_cast<int32_t>(rank));
  }
  if (ranks.empty() || (identity_ && in_place)) {
    *this = {};
    n_ = ranks.size();
    return;
  }
  const bool narrow = ranks.size() <= kMaxNarrow;
  if (!identity_ && wide() != narrow) {
    narrow ? MoveFrom(moves, ranks, narrow_) : MoveFrom(moves, ranks, wide_);
  } else {
    SlotOrder moved;
    moved.identity_ = false;
    narrow ? MoveInto(moves, ranks, moved.narrow_) : MoveInto(moves, ranks, moved.wide_);
    *this = std::move(moved);
  }
  n_ = ranks.size();
}

template <class T>
void SlotOrder::MoveFrom(const Moves& moves, std::span<const int32_t> ranks,
                         std::vector<T>& slots) {
  for (size_t i = 0; i < ranks.size(); ++i) {
    const T slot = slots[static_cast<size_t>(ranks[i])];
    slots[i] = static_cast<T>(moves.place_of[static_cast<size_t>(slot)]);
  }
  slots.resize(ranks.size());
  ShrinkIfLoose(slots);
}

template <class T>
void SlotOrder::MoveInto(const Moves& moves, std::span<const int32_t> ranks,
                         std::vector<T>& slots) const {
  slots.reserve(ranks.size());
  for (const int32_t rank : ranks) {
    const Slot slot = (*this)[static_cast<size_t>(rank)];
    slots.push_back(static_cast<T>(moves.place_of[static_cast<size_t>(slot)]));
  }
}

void SlotOrder::CopyTo(std::span<Slot> out) const {
  WINNOW_CHECK(out.size() == n_);
  if (identity_) return std::iota(out.begin(), out.end(), Slot{0});
  WithSlots([&](auto slots) { std::ranges::copy(slots, out.begin()); });
}

void SlotOrder::CopyRanksTo(std::span<int32_t> out) const {
  WINNOW_CHECK(out.size() == n_);
  if (identity_) return std::iota(out.begin(), out.end(), 0);
  WithSlots([&](auto slots) {
    for (size_t rank = 0; rank < slots.size(); ++rank) {
      out[static_cast<size_t>(slots[rank])] = static_cast<int32_t>(rank);
    }
  });
}

void SlotOrder::ShrinkToFit() {
  narrow_.shrink_to_fit();
  wide_.shrink_to_fit();
}

int64_t SlotOrder::allocated_bytes() const {
  return static_cast<int64_t>(narrow_.capacity() * sizeof(uint16_t) +
                              wide_.capacity() * sizeof(Slot));
}

}  // namespace winnow::cache
