#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "cache/index/moves.h"
#include "cache/plan.h"

namespace winnow::cache {

// Text positions of a KV head's entries by rank, ascending. Positions without gaps take no memory;
// otherwise each takes 2 bytes, its lower 16 bits. The upper 16 bits ascend too, so each of their
// values is stored once.
class PositionList {
 public:
  size_t size() const { return n_; }
  // Requires: rank < size().
  Position operator[](size_t rank) const {
    if (!listed_) return first_ + static_cast<Position>(rank);
    size_t part = high_parts_.size() - 1;
    while (high_parts_[part].first_rank > rank) --part;
    return high_parts_[part].high * kLowRange + lows_[rank];
  }
  // Requires: strictly ascending, the first greater than the last stored one.
  void Append(std::span<const Position> positions);
  void Erase(size_t rank);
  // Stores positions even without gaps: evictions allocate nothing from here on.
  void Materialize() {
    if (!listed_ && n_ > 0) List(0);
  }
  // Keeps only the given ranks, which ascend.
  void Keep(std::span<const int32_t> ranks);
  // All positions by rank. Requires: out.size() == size().
  void CopyTo(std::span<Position> out) const;

  // Whether positions are stored one by one. If not, the entry of rank r is at first() + r.
  bool is_stored() const { return listed_; }
  Position first() const { return first_; }

  void ShrinkToFit();
  int64_t allocated_bytes() const;

 private:
  static constexpr Position kLowRange = 1 << 16;
  struct HighPart {
    uint32_t first_rank = 0;  // of this rank up to the next part's
    Position high = 0;        // position / kLowRange, rounded down
  };

  // Starts to store positions one by one.
  void List(size_t n_more);
  void Push(Position position);

  size_t n_ = 0;
  Position first_ = 0;
  bool listed_ = false;
  std::vector<uint16_t> lows_;  // [rank]
  std::vector<HighPart> high_parts_;
};

}  // namespace winnow::cache
