#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/thread_pool.h"
#include "kernels/ops.h"

// Row-wise operations of the CPU backend on plain host memory; see ops.h.
namespace winnow::kernels::cpu {

// A row-major float matrix in host memory; `stride` in floats.
struct HostRows {
  float* data = nullptr;
  int64_t rows = 0;
  int64_t cols = 0;
  int64_t stride = 0;

  float* Row(int64_t row) const { return data + row * stride; }
};

// Rotation of rows: cos and sin of position p lie in table.Row(p).
struct HostRope {
  HostRows table;
  int head_dim = 0;
  int n_rotated = 0;
  bool interleaved = false;
  std::span<const int32_t> positions;  // per row
};

// Destination of StoreRows: slot s of head h is at heads[h] + s * (bytes of a row of `type`).
struct HostStoreTarget {
  std::span<std::byte* const> heads;
  std::span<const int64_t> first_slot;  // per head
  TensorType type = TensorType::kF16;
  std::atomic<int64_t>* n_overflowed = nullptr;  // += the values too large for the type
};

// Kernels of one instruction set. Outputs may alias inputs where ops.h allows it. Norms sum in
// double.
struct RowKernels {
  // weight [x.cols]
  void (*rms_norm)(const HostRows& x, const float* weight, float epsilon, const HostRows& out,
                   ThreadPool& pool);
  // weight [head_dim], applied to every run of head_dim columns
  void (*rms_norm_heads)(const HostRows& x, const float* weight, int64_t head_dim, float epsilon,
                         ThreadPool& pool);
  // weight, bias [x.cols]; bias may be null
  void (*layer_norm)(const HostRows& x, const float* weight, const float* bias, float epsilon,
                     const HostRows& out, ThreadPool& pool);
  // up.data may be null. The exponential's relative error is below 1e-6.
  void (*activate)(Activation activation, const HostRows& gate, const HostRows& up,
                   const HostRows& out, ThreadPool& pool);
  void (*rope)(const HostRows& x, const HostRope& rope, ThreadPool& pool);
  void (*hadamard)(const HostRows& x, int64_t head_dim, ThreadPool& pool);
  void (*store_rows)(const HostRows& x, const HostStoreTarget& target, ThreadPool& pool);
};

// The kernels for one HWY_* target bit.
const RowKernels& RowKernelsFor(int64_t target);

}  // namespace winnow::kernels::cpu
