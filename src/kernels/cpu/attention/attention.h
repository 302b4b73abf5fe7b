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

// Attention of the CPU backend on plain host memory; see kernels/attention.h.
namespace winnow::kernels::cpu {

// One KV head: rows [row, dim] as stored, in the cache types, and its entries.
struct HostHead {
  const std::byte* keys = nullptr;
  const std::byte* values = nullptr;
  int64_t n_slots = 0;  // entries
  int64_t n_rows = 0;   // stored rows; equals n_slots unless entries.rows is set
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

// Maximum of a row's scores, and sum of 2^(score - max).
struct RowTotal {
  float max = 0;
  float sum = 0;
};

// Working memory that a backend keeps between calls, so that decode steps allocate nothing once it
// has grown.
struct AttentionScratch {
  std::vector<float> partials;    // results per part of the slots
  std::vector<float> statistics;  // row maxima and sums
  std::vector<RowTotal> totals;   // per row of a decode step
  std::vector<int64_t> n_kept;    // with top_p: entries that each query head attends to
  std::vector<float> weights;     // scores and weights of a decode step's entries
  std::vector<float> threads;     // per thread: packed queries, tiles, scores
  // Per thread: the weights of a block of rows and their column sums; at most 16 MiB. A call with
  // one query, or without column sums, frees it.
  std::vector<float> kept;
  // Mutex h % 8 guards the column sums of KV head h.
  std::array<std::mutex, 8> sums_mutexes;
};

// Few queries make one pass over the stored rows, with all query heads of a group at once. Many
// queries are processed as blocks of queries against tiles of keys and values unpacked to floats. A
// single query with shared rows or with top_p first computes all weights and then reads every
// stored row once. Long caches are split into chunks whose size depends only on the shape, so the
// result is the same for any number of threads.
void Attend(const HostAttention& attention, const Processor& processor, AttentionScratch& scratch,
            ThreadPool& pool);

}  // namespace winnow::kernels::cpu
