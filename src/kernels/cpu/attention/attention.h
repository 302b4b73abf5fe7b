#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "kernels/cpu/attention/attention_kernels.h"
#include "kernels/cpu/processor.h"
#include "kernels/ops.h"

// Attention of the CPU backend, on plain host memory. The meaning is in ops.h.
namespace winnow::kernels::cpu {

// Rows [row, dim] of the cache types, as stored, and the entries of one KV head.
struct HostHead {
  const std::byte* keys = nullptr;
  const std::byte* values = nullptr;
  int64_t n_slots = 0;  // entries
  int64_t n_rows = 0;   // stored; as many as entries unless entries.rows is set
  EntryMap entries;
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
  Rotation rotation;
  float top_p = 1;
  int64_t* n_attended = nullptr;
  TapSpec taps;
  Taps* found = nullptr;  // filled if taps.any()
};

// Max of a row's scores, and sum of 2^(score - max).
struct RowTotal {
  float max = 0;
  float sum = 0;
};

// Working memory that a backend keeps between calls, so that a decode step allocates nothing once
// it has grown.
struct AttentionScratch {
  std::vector<float> partials;    // results per part of the slots
  std::vector<float> statistics;  // row maxima and sums
  std::vector<RowTotal> totals;   // of the rows of a decode step
  std::vector<int64_t> n_kept;    // entries a query head attends to, with top_p
  std::vector<float> weights;     // scores and weights of a decode step's entries
  std::vector<float> threads;     // per thread: packed queries, tiles, scores
  // Per thread: a block's weights, and what they give to each entry; 16 MiB at most. Given back by
  // the first call of one query, or without column sums.
  std::vector<float> kept;
  std::array<std::mutex, 8>
      sums_mutexes;  // of a KV head's column sums: by its number modulo theirs
};

// Few queries are answered by a pass over the stored rows with all query heads of a group at once;
// many by blocks of queries against tiles of keys and values unpacked to floats. Where one query
// meets entries that share rows, or attends to some entries only, its weights are found first and
// every stored row is weighed once. Long caches are cut in chunks whose size depends on the shape
// alone, so the result is the same for any number of threads.
void Attend(const HostAttention& attention, const Processor& processor, AttentionScratch& scratch,
            ThreadPool& pool);

}  // namespace winnow::kernels::cpu
