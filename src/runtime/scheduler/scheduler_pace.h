#pragma once

#include <cstdint>

namespace winnow::runtime {

// How much of a prompt may be read between two decode steps, so that the time between two tokens of
// running sequences stays within a bound. Learned from the times of the last decode steps and row
// blocks; whatever the model's speed, a few blocks tell it.
class Pace {
 public:
  // row_block: rows of a block where nobody waits.
  Pace(double max_gap_ms, int64_t row_block) : max_gap_ms_(max_gap_ms), row_block_(row_block) {}

  // What was measured.
  void AddDecode(double ms);
  void AddBlock(int64_t n_rows, double ms);

  // A decode step takes about so long.
  double decode_ms() const { return decode_ms_; }
  // Rows of the next block: so few that a block is a small part of the gap.
  int64_t BlockRows() const;
  // Whether another block of so many rows, and a decode step after it, stay within the gap when
  // `since_ms` have passed since the last tokens.
  bool Fits(double since_ms, int64_t n_rows) const;

 private:
  double max_gap_ms_;
  int64_t row_block_;
  double decode_ms_ = 0;
  double row_ms_ = 0;  // 0: nothing was measured yet
};

}  // namespace winnow::runtime
