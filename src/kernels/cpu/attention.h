#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "kernels/ops.h"

// Attention of the CPU backend, on plain host memory. The meaning is in ops.h.
namespace winnow::kernels::cpu {

// Rows [slot, dim] of the cache types, as stored.
struct HostHead {
  const std::byte* keys = nullptr;
  const std::byte* values = nullptr;
  int64_t n_slots = 0;
};

struct HostAttention {
  const float* q = nullptr;  // [n_queries, n_q_heads * key_dim]
  int64_t q_stride = 0;      // floats
  float* out = nullptr;      // [n_queries, n_q_heads * value_dim]
  int64_t out_stride = 0;    // floats
  int64_t n_queries = 0;
  int n_q_heads = 0;
  int key_dim = 0;
  int value_dim = 0;
  TensorType key_type = TensorType::kF16;
  TensorType value_type = TensorType::kF16;
  float scale = 0;
  std::span<const HostHead> heads;  // one per KV head
  TapSpec taps;
  Taps* found = nullptr;  // filled if taps.any()
};

// Working memory that a backend keeps between calls, so that a decode step allocates nothing once
// it has grown.
struct AttentionScratch {
  std::vector<float> partials;    // results per part of the slots
  std::vector<float> statistics;  // row maxima and sums, or a decode step's weights, for the taps
  std::vector<float> threads;     // per thread: packed queries, tiles, scores
};

// Few queries are answered by a pass over the stored rows with all query heads of a group at once;
// many by blocks of queries against tiles of keys and values unpacked to floats. Long caches are
// cut in chunks whose size depends on the shape alone, so the result is the same for any number of
// threads.
void Attend(const HostAttention& attention, int64_t target, AttentionScratch& scratch,
            ThreadPool& pool);

}  // namespace winnow::kernels::cpu
