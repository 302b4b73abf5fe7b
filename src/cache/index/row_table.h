#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "base/half.h"
#include "cache/index/growth.h"
#include "cache/index/moves.h"
#include "cache/plan.h"

namespace winnow::cache {

// The stored row of every slot, [slot]. Valid until the layer changes.
class SlotRows {
 public:
  SlotRows() = default;
  SlotRows(std::span<const uint16_t> short_rows, std::span<const Slot> rows)
      : short_rows_(short_rows), rows_(rows) {}

  size_t size() const { return short_rows_.size() + rows_.size(); }
  bool empty() const { return size() == 0; }
  Slot operator[](size_t slot) const { return rows_.empty() ? short_rows_[slot] : rows_[slot]; }

  // The numbers themselves; one of the two spans is empty.
  std::span<const uint16_t> short_rows() const { return short_rows_; }
  std::span<const Slot> rows() const { return rows_; }

 private:
  std::span<const uint16_t> short_rows_;
  std::span<const Slot> rows_;
};

// Rows and factors of a head whose slots may share rows. Their memory counts as the method's state:
// 4 bytes per entry, or 6 while the head stores more than 65536 rows.
class RowTable {
 public:
  static constexpr int64_t kSlotBytes = sizeof(uint16_t) + sizeof(Half);

  size_t size() const { return factors_.size(); }
  SlotRows rows() const { return {short_rows_, rows_}; }
  std::span<const Half> factors() const { return factors_; }  // [slot], of the key
  int64_t bytes() const {
    return static_cast<int64_t>(short_rows_.size() * sizeof(uint16_t) +
                                rows_.size() * sizeof(Slot) + factors_.size() * sizeof(Half));
  }

  // Adds n slots with a row each, from first_row on.
  void Append(size_t n, Slot first_row) {
    if (first_row + static_cast<int64_t>(n) > kMaxShortRows) Widen();
    const size_t n_slots = size() + n;
    if (wide_) {
      GrowBy(rows_, n);
    } else {
      GrowBy(short_rows_, n);
    }
    GrowBy(factors_, n);
    for (Slot row = first_row; row < first_row + static_cast<Slot>(n); ++row) {
      if (wide_) {
        rows_.push_back(row);
      } else {
        short_rows_.push_back(static_cast<uint16_t>(row));
      }
    }
    factors_.resize(n_slots, 1.0f);
  }
  // Sets rows and factors of all slots. Requires: both of the same length; rows below max_rows.
  void Assign(std::span<const Slot> rows, std::span<const Half> factors, int64_t max_rows) {
    *this = {};
    if (max_rows > kMaxShortRows) {
      wide_ = true;
      rows_.assign(rows.begin(), rows.end());
    } else {
      short_rows_.assign(rows.begin(), rows.end());
    }
    factors_.assign(factors.begin(), factors.end());
  }
  void Set(Slot slot, Slot row, float factor) {
    SetRow(slot, row);
    factors_[static_cast<size_t>(slot)] = factor;
  }
  // Requires: `row` is below the number of rows appended.
  void SetRow(Slot slot, Slot row) {
    if (wide_) {
      rows_[static_cast<size_t>(slot)] = row;
    } else {
      short_rows_[static_cast<size_t>(slot)] = static_cast<uint16_t>(row);
    }
  }
  // As Moves::ApplyMoves.
  void ApplyMoves(const Moves& moves, size_t n_left) {
    if (wide_) {
      moves.ApplyMoves(rows_, n_left);
    } else {
      moves.ApplyMoves(short_rows_, n_left);
    }
    moves.ApplyMoves(factors_, n_left);
  }
  // Call when no slot is stored in a row from n_rows on.
  void Narrow(int64_t n_rows) {
    if (!wide_ || n_rows > kMaxShortRows) return;
    wide_ = false;
    short_rows_.assign(rows_.begin(), rows_.end());
    std::vector<Slot>().swap(rows_);
  }
  // Frees unused memory.
  void ShrinkToFit() {
    short_rows_.shrink_to_fit();
    rows_.shrink_to_fit();
    factors_.shrink_to_fit();
  }

 private:
  static constexpr int64_t kMaxShortRows = int64_t{std::numeric_limits<uint16_t>::max()} + 1;

  void Widen() {
    if (wide_) return;
    wide_ = true;
    rows_.assign(short_rows_.begin(), short_rows_.end());
    std::vector<uint16_t>().swap(short_rows_);
  }

  bool wide_ = false;  // which of the two lists is used
  std::vector<uint16_t> short_rows_;
  std::vector<Slot> rows_;
  std::vector<Half> factors_;
};

}  // namespace winnow::cache
