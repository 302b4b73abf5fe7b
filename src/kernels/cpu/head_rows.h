#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "kernels/ops.h"

// Reads and rewrites stored rows of one KV head in plain host memory; see ops.h.
namespace winnow::kernels::cpu {

// Rows of one head: all its keys or all its values.
struct HostHeadRows {
  std::byte* data = nullptr;  // of row 0
  int64_t n_rows = 0;         // rows that fit into the storage
  int dim = 0;
  TensorType type = TensorType::kF16;
  int64_t row_bytes = 0;

  const std::byte* Row(int32_t row) const { return data + row * row_bytes; }
};

void ReadRows(const HostHeadRows& head, std::span<const int32_t> rows, std::span<float> out,
              ThreadPool& pool);

// `scratch` keeps its memory between calls.
void SumRows(const HostHeadRows& head, std::span<const RowSum> sums, std::vector<float>& scratch,
             ThreadPool& pool);

}  // namespace winnow::kernels::cpu
