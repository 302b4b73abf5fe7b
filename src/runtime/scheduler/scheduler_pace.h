#pragma once

#include <cstdint>

namespace winnow::runtime {

// How much of a prompt may be read between two decode steps, so that the time between two tokens of
// running sequences stays within a bound. Learned from the times of recent decode steps and row
// blocks; a few blocks are enough for a model of any speed.
class Pace {
 public:
  // row_block: the maximum rows of a block, used when no sequence is decoding.
  Pace(double max_gap_ms, int64_t row_block) : max_gap_ms_(max_gap_ms), row_block_(row_block) {}

  // Adds a measured time.
  void AddDecode(double ms);
  void AddBlock(int64_t n_rows, double ms);

  // Estimated time of a decode step.
  double decode_ms() const { return decode_ms_; }
  // Rows of the next block, chosen so that a block takes a small part of the gap.
  int64_t BlockRows() const;
  // Whether another block of n_rows, and a decode step after it, fit into the gap when `since_ms`
  // have passed since the last tokens.
  bool Fits(double since_ms, int64_t n_rows) const;

 private:
  double max_gap_ms_;
  int64_t row_block_;
  double decode_ms_ = 0;
  double row_ms_ = 0;  // 0: nothing was measured yet
};

}  // namespace winnow::runtime
