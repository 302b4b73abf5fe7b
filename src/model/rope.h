#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/result.h"
#include "kernels/ops.h"
#include "model/model.h"

namespace winnow::model {

// Radians by which every pair of dimensions turns per position, [n_rotated / 2].
// `context` is the longest position in use: it decides between the two sets of frequency factors.
std::vector<double> RopeAngles(const RopeParameters& rope, int64_t context);

// What cos and sin are multiplied by.
double RopeMagnitude(const RopeParameters& rope);

// cos and sin for the positions in use; grows as they do.
class RopePositions {
 public:
  // `context` decides between the sets of factors; of `n_positions` there are rows at most.
  RopePositions(kernels::Backend& backend, const RopeParameters& rope, int64_t context,
                int64_t n_positions);
  RopePositions(kernels::Backend& backend, const RopeParameters& rope, int64_t context)
      : RopePositions(backend, rope, context, context) {}

  // Makes table() cover positions [0, n_positions). Error: memory refused.
  // Requires: n_positions <= most().
  Result<void> Cover(int64_t n_positions);
  const kernels::RopeTable& table() const { return table_; }
  int64_t most() const { return most_; }
  // The table's memory once it covers so many, at most.
  int64_t bytes(int64_t n_positions) const;

 private:
  kernels::Backend& backend_;
  int64_t context_;
  int64_t most_;
  std::vector<double> angles_;
  double magnitude_;
  std::unique_ptr<kernels::Storage> storage_;
  kernels::RopeTable table_;
};

}  // namespace winnow::model
