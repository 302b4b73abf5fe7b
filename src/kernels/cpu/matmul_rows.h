#pragma once

#include <cstdint>

#include "kernels/cpu/matmul.h"
#include "kernels/cpu/matmul_input.h"

namespace winnow::kernels::cpu {

// Products with few input rows: every weight row is read once from its blocks in the file and
// multiplied with up to four input rows while it is in registers.
struct RowProducts {
  // Rows [first, first + n) of a quantised weight. Requires: first % 4 == 0 (rows are taken in
  // fours).
  void (*rounded)(const MatMulJob& job, int64_t first, int64_t n, const RoundedInput& x);
  // The same for F32, F16, BF16 weights.
  void (*floats)(const MatMulJob& job, int64_t first, int64_t n, const MatMulInput& x);
};

RowProducts RowProductsFor(int64_t target);

}  // namespace winnow::kernels::cpu
