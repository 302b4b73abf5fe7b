#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <vector>

#include "base/result.h"
#include "kernels/ops.h"
#include "model/model.h"

namespace winnow::model {

// Rotation of every pair of dimensions in radians per position, [n_rotated / 2]. `context`:
// positions in use; selects one of the two sets of frequency factors.
std::vector<double> RopeAngles(const RopeParameters& rope, int64_t context);

// Factor of cos and sin.
double RopeMagnitude(const RopeParameters& rope);

// RoPE tables for the positions in use; they grow with the positions. Thread-safe if the backend
// is.
class RopePositions {
 public:
  // `context` selects the set of frequency factors; `n_positions` is the maximum number of rows.
  RopePositions(kernels::Backend& backend, const RopeParameters& rope, int64_t context,
                int64_t n_positions);
  RopePositions(kernels::Backend& backend, const RopeParameters& rope, int64_t context)
      : RopePositions(backend, rope, context, context) {}

  // Returns a table that covers at least positions [0, n_positions). A returned table never
  // changes: growing makes a new one. Error: memory refused. Requires: n_positions <=
  // max_positions().
  Result<std::shared_ptr<const kernels::RopeTable>> Cover(int64_t n_positions);
  int64_t max_positions() const { return max_positions_; }
  // Maximum bytes of a table that covers n_positions.
  int64_t bytes(int64_t n_positions) const;

 private:
  // A table with its memory.
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
  kernels::RopeTable form_;  // parameters common to all tables; its `table` is empty
  std::mutex mutex_;
  std::shared_ptr<const Owned> covered_;
};

}  // namespace winnow::model
