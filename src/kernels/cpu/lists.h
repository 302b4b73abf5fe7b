#pragma once

#include <cstdint>
#include <span>

#include "kernels/ops.h"

// Kernels for host lists with a number per entry.
namespace winnow::kernels::cpu {

struct ListKernels {
  // See Backend::AddAttention and ScoreAttention.
  AttentionTotals (*add_attention)(const AttentionSums& sums, std::span<const float> weights);
  void (*score_attention)(const AttentionSums& sums, double total_factor, double window_factor,
                          std::span<float> scores);
  // out[i] = halves[i]. Requires: `out` has room for halves.size() floats.
  void (*to_floats)(std::span<const Half> halves, float* out);
};
const ListKernels& ListKernelsFor(int64_t target);

}  // namespace winnow::kernels::cpu
