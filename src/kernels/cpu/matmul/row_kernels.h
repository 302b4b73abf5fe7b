#pragma once

#include <cstdint>

#include "kernels/cpu/matmul/input_kernels.h"
#include "kernels/cpu/matmul/matmul.h"
#include "kernels/cpu/processor.h"

namespace winnow::kernels::cpu {

// Some rows of every stream of a weight (PrefetchPolicy::streams): rows first + i + s * stream_rows
// for all i < n and all s, as far as they exist.
struct WeightRows {
  int64_t first = 0;
  int64_t n = 0;
  int64_t stream_rows = 0;
  PrefetchPolicy prefetch = {};

  template <typename Use>
  void ForEach(int64_t n_rows, const Use& use) const {
    for (int64_t i = first; i < first + n; ++i) {
      for (int64_t row = i; row < n_rows; row += stream_rows) use(row);
    }
  }
};

// Products with few input rows: each weight row is read directly from its blocks in the file and
// multiplied with all input rows while those blocks are in L1.
struct RowProducts {
  void (*quantized)(const MatMulJob& job, const WeightRows& rows, const QuantizedInput& x);
  // The same for F32, F16, BF16 weights.
  void (*floats)(const MatMulJob& job, const WeightRows& rows, const MatMulInput& x);
};

RowProducts RowProductsFor(int64_t target);

}  // namespace winnow::kernels::cpu
