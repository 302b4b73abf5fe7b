#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
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

// cos and sin for the positions in use; grows as they do. For several threads at once, as far as
// the backend is.
class RopePositions {
 public:
  // `context` decides between the sets of factors; of `n_positions` there are rows at most.
  RopePositions(kernels::Backend& backend, const RopeParameters& rope, int64_t context,
                int64_t n_positions);
  RopePositions(kernels::Backend& backend, const RopeParameters& rope, int64_t context)
      : RopePositions(backend, rope, context, context) {}

  // A table that covers positions [0, n_positions) at least. It stays as it is while it is held:
  // growing makes a new one. Error: memory refused. Requires: n_positions <= max_positions().
  Result<std::shared_ptr<const kernels::RopeTable>> Cover(int64_t n_positions);
  int64_t max_positions() const { return max_positions_; }
  // The table's memory once it covers so many, at most.
  int64_t bytes(int64_t n_positions) const;

 private:
  // A table and its memory.
  struct Owned {
    std::unique_ptr<kernels::Storage> storage;
    kernels::RopeTable table;
  };

  Result<std::shared_ptr<const Owned>> Make(int64_t n_rows) const;

  kernels::Backend& backend_;
  int64_t context_;
  int64_t max_positions_;
  std::vector<double> angles_;
  double magnitude_;
  kernels::RopeTable form_;  // what every table has in common; without one
  std::mutex mutex_;
  std::shared_ptr<const Owned> covered_;
};

}  // namespace winnow::model
