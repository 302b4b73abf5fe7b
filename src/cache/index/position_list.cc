#include "cache/index/position_list.h"

#include <numeric>

#include "base/check.h"
#include "cache/index/growth.h"

namespace winnow::cache {

void PositionList::Push(Position position) {
  const Position high = position >> 16;
  if (high_parts_.empty() || high_parts_.back().high != high) {
    WINNOW_CHECK(high_parts_.empty() || high_parts_.back().high < high);
    high_parts_.push_back({static_cast<uint32_t>(lows_.size()), high});
  }
  lows_.push_back(static_cast<uint16_t>(position & (kLowRange - 1)));
}

void PositionList::List(size_t n_more) {
  listed_ = true;
  GrowBy(lows_, n_ + n_more);
  for (size_t rank = 0; rank < n_; ++rank) Push(first_ + static_cast<Position>(rank));
}

void PositionList::Append(std::span<const Position> positions) {
  if (positions.empty()) return;
  WINNOW_CHECK(n_ == 0 || (*this)[n_ - 1] < positions[0]);
  if (!listed_) {
    if (n_ == 0) first_ = positions[0];
    size_t n_in_line = 0;
    while (n_in_line < positions.size() &&
           positions[n_in_line] == first_ + static_cast<Position>(n_ + n_in_line)) {
      ++n_in_line;
    }
    if (n_in_line == positions.size()) {
      n_ += n_in_line;
      return;
    }
    List(positions.size());
  }
  GrowBy(lows_, positions.size());
  for (const Position position : positions) {
    WINNOW_DCHECK(n_ == 0 || (*this)[n_ - 1] < position);
    Push(position);
    ++n_;
  }
}

void PositionList::Erase(size_t rank) {
  WINNOW_CHECK(rank < n_);
  if (n_ == 1) {
    *this = {};
    return;
  }
  if (!listed_) {
    if (rank == 0) ++first_;
    if (rank == 0 || rank == n_ - 1) {
      --n_;
      return;
    }
    List(0);
  }
  --n_;
  lows_.erase(lows_.begin() + static_cast<ptrdiff_t>(rank));
  for (size_t part = high_parts_.size(); part-- > 0 && high_parts_[part].first_rank > rank;) {
    --high_parts_[part].first_rank;
  }
  // Remove a part without entries: it begins where the next part begins, or at the end.
  for (size_t part = 0; part < high_parts_.size(); ++part) {
    const size_t end =
        part + 1 < high_parts_.size() ? high_parts_[part + 1].first_rank : lows_.size();
    if (high_parts_[part].first_rank < end) continue;
    high_parts_.erase(high_parts_.begin() + static_cast<ptrdiff_t>(part));
    break;
  }
}

void PositionList::Keep(std::span<const int32_t> ranks) {
  if (ranks.empty()) {
    *this = {};
    return;
  }
  if (!listed_) {
    if (static_cast<size_t>(ranks.back() - ranks.front()) + 1 == ranks.size()) {
      first_ += ranks.front();
      n_ = ranks.size();
      return;
    }
    PositionList kept;
    kept.listed_ = true;
    kept.n_ = ranks.size();
    kept.lows_.reserve(ranks.size());
    for (const int32_t rank : ranks) kept.Push((*this)[static_cast<size_t>(rank)]);
    *this = std::move(kept);
    return;
  }
  // In place: writes never pass reads.
  size_t part = 0;
  size_t n_parts = 0;
  n_ = 0;
  for (const int32_t rank : ranks) {
    const auto from = static_cast<uint32_t>(rank);
    while (part + 1 < high_parts_.size() && high_parts_[part + 1].first_rank <= from) ++part;
    const Position high = high_parts_[part].high;
    if (n_parts == 0 || high_parts_[n_parts - 1].high != high) {
      high_parts_[n_parts++] = {static_cast<uint32_t>(n_), high};
    }
    lows_[n_++] = lows_[from];
  }
  lows_.resize(n_);
  high_parts_.resize(n_parts);
  ShrinkIfLoose(lows_);
}

void PositionList::CopyTo(std::span<Position> out) const {
  WINNOW_CHECK(out.size() == n_);
  if (!listed_) return std::iota(out.begin(), out.end(), first_);
  size_t end = n_;
  for (size_t part = high_parts_.size(); part-- > 0;) {
    const Position high = high_parts_[part].high * kLowRange;
    const size_t begin = high_parts_[part].first_rank;
    for (size_t rank = begin; rank < end; ++rank) out[rank] = high + lows_[rank];
    end = begin;
  }
}

void PositionList::ShrinkToFit() {
  lows_.shrink_to_fit();
  high_parts_.shrink_to_fit();
}

int64_t PositionList::allocated_bytes() const {
  return static_cast<int64_t>(lows_.capacity() * sizeof(uint16_t) +
                              high_parts_.capacity() * sizeof(HighPart));
}

}  // namespace winnow::cache
