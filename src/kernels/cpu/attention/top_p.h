#pragma once

#include <cstdint>
#include <span>

namespace winnow::kernels::cpu {

// Keeps the smallest set of weights whose sum reaches top_p of all of them, of equal weights those
// of the later entries; the others become zero. Cost: two passes, and a sort of those weights that
// are about as large as the smallest one kept.
//   weights     [entry], >= 0, unnormalised. Where one is NaN or they add up to infinity all are
//               kept, and `sum` is NaN.
//   candidates  room for as many numbers
struct Kept {
  int64_t n = 0;
  double sum = 0;  // of the weights kept
};
Kept KeepTopP(std::span<float> weights, double top_p, std::span<int32_t> candidates);

}  // namespace winnow::kernels::cpu
