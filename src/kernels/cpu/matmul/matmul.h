#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "kernels/cpu/processor.h"
#include "kernels/ops.h"

// Matrix products of the CPU backend, on plain host memory.
namespace winnow::kernels::cpu {

// The input of all jobs: [rows, cols], rows `stride` floats apart.
struct MatMulInput {
  const float* x = nullptr;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t stride = 0;
  bool batch_invariant = false;  // results of a row do not depend on other rows, bit for bit
};

// out[i, r] (+)= x[i] . W[r] + bias[r].
struct MatMulJob {
  TensorType type = TensorType::kF32;
  const std::byte* weight = nullptr;  // rows of RowBytes(type, cols) each, as in the file
  int64_t rows = 0;
  const float* bias = nullptr;  // [rows] or null
  float* out = nullptr;
  int64_t out_stride = 0;  // floats
  bool accumulate = false;
};

// Working memory that a backend keeps between calls, so that a decode step allocates nothing once
// it has grown.
struct MatMulScratch {
  std::vector<std::byte> input;    // the quantised or packed input
  std::vector<std::byte> threads;  // per thread: unpacked weights
};

// Runs all jobs in one parallel loop. One thread computes each result, in an order that depends
// only on the shape, so the result is the same for any number of threads. `overlapped`: see
// ThreadPool::ParallelFor.
void MatMul(const MatMulInput& input, std::span<const MatMulJob> jobs, const Processor& processor,
            MatMulScratch& scratch, ThreadPool& pool, const std::function<void()>& overlapped);

}  // namespace winnow::kernels::cpu
