#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/thread_pool.h"
#include "kernels/cpu/attention/attention.h"
#include "kernels/cpu/attention/attention_kernels.h"

// Shared parts of the implementations of an attention call.
namespace winnow::kernels::cpu {

inline int64_t DivideUp(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Makes room for at least n floats; their content is unspecified.
inline float* Reserve(std::vector<float>& memory, int64_t n) {
  if (memory.size() < static_cast<size_t>(n)) memory.resize(static_cast<size_t>(n));
  return memory.data();
}

// A part of `memory` for every thread, aligned to a cache line so that no vector of a tile
// straddles two lines. Requires: floats_per_part is a multiple of kLineFloats.
inline constexpr int64_t kLineFloats = 16;
inline void ReserveParts(std::vector<float>& memory, int64_t floats_per_part, int64_t n_parts) {
  Reserve(memory, floats_per_part * n_parts + kLineFloats);
}
inline float* ScratchPart(std::vector<float>& memory, int64_t floats_per_part, int64_t part) {
  constexpr uintptr_t kLineBytes = kLineFloats * sizeof(float);
  const auto address = reinterpret_cast<uintptr_t>(memory.data());
  const auto aligned = (address + kLineBytes - 1) / kLineBytes * kLineBytes;
  return reinterpret_cast<float*>(aligned) + floats_per_part * part;
}

// Partial results of every (KV head, part, row) of a call.
class Partials {
 public:
  Partials(std::vector<float>& memory, int64_t n_heads, int64_t n_parts, int64_t n_rows,
           int value_dim)
      : n_parts_(n_parts), n_rows_(n_rows), value_dim_(value_dim) {
    const int64_t n = n_heads * n_parts * n_rows;
    max_ = Reserve(memory, n * (2 + value_dim));
    sum_ = max_ + n;
    acc_ = sum_ + n;
  }

  Partial At(int64_t head, int64_t part, int64_t row) const {
    const int64_t i = (head * n_parts_ + part) * n_rows_ + row;
    return {max_ + i, sum_ + i, acc_ + i * value_dim_};
  }

 private:
  int64_t n_parts_;
  int64_t n_rows_;
  int value_dim_;
  float* max_;
  float* sum_;
  float* acc_;
};

// Merges the first n_parts parts of a row: writes the result to `out` and returns the row's max and
// sum over all parts.
RowTotal Merge(const Partials& partials, int64_t head, int64_t n_parts, int64_t row, int value_dim,
               float* out);

// Arguments and scratch of one call.
struct Call {
  const HostAttention& a;
  AttentionShape shape;
  int64_t n_heads = 0;  // KV heads
  AttentionScratch& scratch;
  ThreadPool& pool;

  const float* Queries(int64_t head) const { return a.q + head * shape.group * shape.key_dim; }
  // Destination of row `row` (query row / group, head row % group) of a KV head.
  float* Out(int64_t head, int64_t row) const {
    return a.out + row / shape.group * a.out_stride +
           (head * shape.group + row % shape.group) * shape.value_dim;
  }
  // Entries that query i of a head sees.
  int64_t Visible(int64_t head, int64_t query) const {
    return a.heads[head].n_slots - a.n_queries + query + 1;
  }
  int64_t LongestHead() const {
    int64_t longest = 0;
    for (const HostHead& head : a.heads) longest = std::max(longest, head.n_slots);
    return longest;
  }
  // Lists of the taps per KV head, and query heads per list.
  int64_t ListsPerHead() const { return a.taps.reduce == TapSpec::Reduce::kNone ? shape.group : 1; }
  int HeadsPerList() const { return a.taps.reduce == TapSpec::Reduce::kNone ? 1 : shape.group; }

  float* ThreadScratch(int64_t floats_per_thread, int thread) const {
    return ScratchPart(scratch.threads, floats_per_thread, thread);
  }
  void ReserveThreads(int64_t floats_per_thread) const {
    ReserveParts(scratch.threads, floats_per_thread, pool.n_threads());
  }
};

// Few queries, one at a time; threads share the chunks of entries. Requires: entries do not share
// rows.
void AttendFewQueries(const Call& call, const DecodeKernels& kernels);
// One query: first its scores, then its weights, then weighted sums of the stored rows.
void AttendByRows(const Call& call, const DecodeKernels& kernels);
// Many queries: blocks of queries against tiles of entries.
void AttendManyQueries(const Call& call, const PrefillKernels& kernels,
                       const TapKernels& tap_kernels);

// Weights of one query for its taps. weights [query head][entry]: unnormalised weights of the query
// heads of a list; factors [query head]: their factors.
struct QueryWeights {
  const float* weights = nullptr;  // of the list's first query head
  int64_t stride = 0;
  const float* factors = nullptr;
};
// Adds the weights of `query` for the entries [first, first + n), n <= kChunkSlots, to one list.
// `reduced` has room for kChunkSlots.
struct TapPlace {
  int64_t list = 0;
  int64_t query = 0;
  int64_t first = 0;
  int n = 0;
};
void AddToTaps(const Call& call, const DecodeKernels& kernels, const TapPlace& place,
               const QueryWeights& weights, float* reduced);

}  // namespace winnow::kernels::cpu
