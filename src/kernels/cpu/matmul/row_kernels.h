#pragma once

#include <cstdint>

#include "kernels/cpu/matmul/input_kernels.h"
#include "kernels/cpu/matmul/matmul.h"
#include "kernels/cpu/processor.h"

namespace winnow::kernels::cpu {

// Some rows of every stream of a weight (PrefetchPolicy::streams): first + i + s * stream_rows,
// for all i < n and all s where there is such a row.
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

// Products with few input rows: a weight row at a time straight from its blocks in the file,
// against one input row after the other while those blocks are in the L1 cache.
struct RowProducts {
  void (*quantized)(const MatMulJob& job, const WeightRows& rows, const QuantizedInput& x);
  // The same for F32, F16, BF16 weights.
  void (*floats)(const MatMulJob& job, const WeightRows& rows, const MatMulInput& x);
};

RowProducts RowProductsFor(int64_t target);

}  // namespace winnow::kernels::cpu
