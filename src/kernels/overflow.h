#pragma once

#include <cstdint>

#include "kernels/ops.h"

// Values that a cache's type cannot hold: counted where they are stored, as they become infinite
// without a word.
namespace winnow::kernels {

// The least magnitude that becomes infinite when it is stored, itself or the scale of its block.
float CacheLimit(TensorType type);

// What a backend whose StoreRows counts is too. Both of this room are.
class OverflowCounter {
 public:
  // Values too large for the type StoreRows was to write them in, since the backend was made.
  virtual int64_t n_overflowed() const = 0;

 protected:
  ~OverflowCounter() = default;
};

// Those of a backend; 0 for one that does not count.
int64_t NOverflowed(const Backend& backend);

}  // namespace winnow::kernels
