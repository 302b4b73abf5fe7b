#pragma once

#include <cstddef>
#include <cstdint>

#include "base/thread_pool.h"

namespace winnow::kernels::cpu {

// The input of a product with quantised weights: every block of 32 values as int8 with a float
// scale (the largest magnitude becomes 127).
struct QuantizedInput {
  int64_t rows = 0;
  int64_t cols = 0;              // multiple of 32
  const int8_t* q = nullptr;     // [rows, cols]
  const float* scale = nullptr;  // [rows, cols / 32]
  // [rows, cols / 32]: scale * (sum of a block's q), for offsets and mins.
  const float* sum32 = nullptr;
  const int32_t* sums = nullptr;  // [rows, cols / 16]: sums of q over half blocks
  const float* sum16 = nullptr;   // [rows, cols / 16]: the same times scale
};

// Destination of one quantised row: rows of the arrays above.
struct QuantizedRow {
  int8_t* q;
  float* scale;
  float* sum32;
  float* sum16;
  int32_t* sums;
};

int64_t QuantizedInputBytes(int64_t rows, int64_t cols);

// Quantises x [rows, cols], rows `stride` floats apart, into `memory` (QuantizedInputBytes, 64-byte
// aligned). NaN and infinity become unspecified values of q.
QuantizedInput QuantizeInput(const float* x, int64_t rows, int64_t cols, int64_t stride,
                             int64_t target, std::byte* memory, ThreadPool& pool);

}  // namespace winnow::kernels::cpu
