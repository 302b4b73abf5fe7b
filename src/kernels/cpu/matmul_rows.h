#pragma once

#include <cstdint>

#include "kernels/cpu/matmul.h"
#include "kernels/cpu/matmul_input.h"

namespace winnow::kernels::cpu {

// Products with few input rows: a few weight rows at a time straight from their blocks in the file,
// against one input row after the other while those blocks are in the first-level cache.
struct RowProducts {
  // Rows [first, first + n) of a quantised weight. Requires: first % 4 == 0 (rows are taken in
  // fours).
  void (*rounded)(const MatMulJob& job, int64_t first, int64_t n, const RoundedInput& x);
  // The same for F32, F16, BF16 weights.
  void (*floats)(const MatMulJob& job, int64_t first, int64_t n, const MatMulInput& x);
};

RowProducts RowProductsFor(int64_t target);

}  // namespace winnow::kernels::cpu
