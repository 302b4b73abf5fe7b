#pragma once

#include <cstdint>
#include <span>

namespace winnow::kernels::cpu {

// Keeps the smallest set of weights whose sum reaches top_p times the total; the others become
// zero. Ties keep the later entry. Cost: two passes, and a sort of the weights in the class (an
// eighth of a power of two) of the smallest one kept.
//   weights     [entry], >= 0, unnormalised. If one is NaN or their sum is infinite, all are kept
//               and `sum` is NaN.
//   candidates  working memory, as many numbers as weights
struct Kept {
  int64_t n = 0;
  double sum = 0;  // of the weights kept
};
Kept KeepTopP(std::span<float> weights, double top_p, std::span<int32_t> candidates);

}  // namespace winnow::kernels::cpu
