#pragma once

#include <cstdint>

#include "kernels/ops.h"

// Counts values that are too large for a cache type. They become infinite silently, so StoreRows
// counts them.
namespace winnow::kernels {

// Smallest magnitude that makes the stored value, or the scale of its block, infinite.
float CacheLimit(TensorType type);

// Second base class of a backend whose StoreRows counts overflows; both backends here have it.
class OverflowCounter {
 public:
  // Values too large for the type that StoreRows wrote, since the backend was made.
  virtual int64_t n_overflowed() const = 0;

 protected:
  ~OverflowCounter() = default;
};

// The backend's count; 0 for a backend that does not count.
int64_t NOverflowed(const Backend& backend);

}  // namespace winnow::kernels
