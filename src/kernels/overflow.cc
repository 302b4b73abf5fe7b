#include "kernels/overflow.h"

#include <limits>

namespace winnow::kernels {

float CacheLimit(TensorType type) {
  constexpr float kHalfLimit = 65520;  // halfway between the largest half and the next power of two
  switch (type) {
    case TensorType::kF16:
      return kHalfLimit;
    case TensorType::kQ8_0:
      return 127 * kHalfLimit;
    case TensorType::kQ4_0:
      return 8 * kHalfLimit;
    case TensorType::kBF16:
      return 0x1.FFp127f;
    default:
      return std::numeric_limits<float>::infinity();
  }
}

int64_t NOverflowed(const Backend& backend) {
  const auto* counter = dynamic_cast<const OverflowCounter*>(&backend);
  return counter == nullptr ? 0 : counter->n_overflowed();
}

}  // namespace winnow::kernels
