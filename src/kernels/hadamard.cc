#include "kernels/hadamard.h"

#include <cmath>

namespace winnow::kernels {

void TransformHead(std::span<float> head) {
  const auto block = static_cast<size_t>(HadamardBlock(static_cast<int64_t>(head.size())));
  const auto scale = static_cast<float>(1 / std::sqrt(static_cast<double>(block)));
  for (size_t first = 0; first < head.size(); first += block) {
    for (size_t reach = 1; reach < block; reach *= 2) {
      for (size_t i = first; i < first + block; ++i) {
        if (((i - first) & reach) != 0) continue;
        const float a = head[i];
        const float b = head[i + reach];
        head[i] = a + b;
        head[i + reach] = a - b;
      }
    }
  }
  for (float& x : head) x *= scale;
}

}  // namespace winnow::kernels
