#pragma once

#include <algorithm>
#include <span>
#include <vector>

#include "compression/method.h"

namespace winnow::compression::score {

// Calls use(rank, row) for the stored rows (keys or values) of the ranks [begin, end) of a KV head,
// oldest first. Reads blocks of rows, so that a long prompt is never held as floats.
template <class Use>
void ForEachRow(const LayerCall& call, int kv_head, const kernels::HeadRows& stored, int64_t begin,
                int64_t end, const Use& use) {
  constexpr int64_t kBlock = 256;
  const std::span<const Slot> order = call.order(kv_head);
  const auto dim = static_cast<size_t>(stored.dim);
  for (int64_t first = begin; first < end; first += kBlock) {
    const auto n = static_cast<size_t>(std::min(kBlock, end - first));
    call.scratch.floats.resize(n * dim);
    const std::span<float> rows(call.scratch.floats);
    call.backend.ReadRows(stored, order.subspan(static_cast<size_t>(first), n), rows);
    for (size_t i = 0; i < n; ++i) {
      use(first + static_cast<int64_t>(i), std::span<const float>(rows.subspan(i * dim, dim)));
    }
  }
}

// The same for the keys of a head.
template <class Use>
void ForEachKey(const LayerCall& call, int kv_head, int64_t begin, int64_t end, const Use& use) {
  ForEachRow(call, kv_head, call.cache.keys(call.layer, kv_head), begin, end, use);
}

inline double SquareNorm(std::span<const float> key) {
  double sum = 0;
  for (const float x : key) sum += static_cast<double>(x) * x;
  return sum;
}

}  // namespace winnow::compression::score
