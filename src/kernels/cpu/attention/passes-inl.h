// How one query reads the rows of a cache: shared by the passes over keys and over values.
// Per-target include guard:
#if defined(WINNOW_KERNELS_CPU_PASSES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef WINNOW_KERNELS_CPU_PASSES_INL_H_
#undef WINNOW_KERNELS_CPU_PASSES_INL_H_
#else
#define WINNOW_KERNELS_CPU_PASSES_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/cpu/attention/attention_kernels.h"
#include "kernels/cpu/processor.h"
#include "kernels/cpu/simd/cache_rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace winnow::kernels::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Maximum number of query heads in a pass over the rows, such that the accumulators stay in
// registers.
constexpr int kHeadsPerPass = kLanes == 16 ? 7 : 3;

// Calls pass(h, HeadCount<n>()) for the heads [h, h + n) of a group, in as few passes as possible
// and of about equal size.
template <int kN>
struct HeadCount {
  static constexpr int kHeads = kN;
};

template <int kN = 1, class F>
HWY_INLINE void CallPass(int h, int n, const F& pass) {
  if (n == kN) {
    pass(h, HeadCount<kN>());
  } else if constexpr (kN < kHeadsPerPass) {
    CallPass<kN + 1>(h, n, pass);
  }
}

template <class F>
HWY_INLINE void ForPasses(int group, const F& pass) {
  for (int left = (group + kHeadsPerPass - 1) / kHeadsPerPass, h = 0; h < group; --left) {
    const int n = (group - h + left - 1) / left;
    CallPass(h, n, pass);
    h += n;
  }
}
// A chunk is read as PrefetchPolicy::streams interleaved streams, each a part of its rows: some
// CPUs read memory in small pages a quarter to a half faster that way (docs/performance.md).

// Slots per stream, in whole tiles; the slots after all streams come last.
constexpr int StreamSlots(int n_slots, int n_streams) {
  return n_slots / (n_streams * kLanes) * kLanes;
}

// Calls tile(slot) for every whole tile of kLanes slots, alternating between the streams.
template <class F>
HWY_INLINE void ForTiles(int n_slots, int n_streams, const F& tile) {
  const int part = StreamSlots(n_slots, n_streams);
  for (int t = 0; t < part; t += kLanes) {
    for (int stream = 0; stream < n_streams; ++stream) tile(stream * part + t);
  }
  for (int slot = n_streams * part; slot + kLanes <= n_slots; slot += kLanes) tile(slot);
}

// A chunk's keys and values as prefetch regions. A single stream prefetches on into the region that
// is read next; with several streams, PrefetchStreams prefetches the start of each.
HWY_INLINE PrefetchPolicy::Part KeyRegion(const AttentionShape& shape, const ChunkJob& job) {
  return {.begin = job.keys,
          .size = job.n_slots * shape.key_row_bytes,
          .then = shape.prefetch.streams == 1 ? job.values : nullptr};
}
HWY_INLINE PrefetchPolicy::Part ValueRegion(const AttentionShape& shape, const ChunkJob& job) {
  return {.begin = job.values,
          .size = job.n_slots * shape.value_row_bytes,
          .then = shape.prefetch.streams == 1 ? job.next_keys : nullptr};
}

// Prefetches the first rows of every stream if there are several.
HWY_INLINE void PrefetchStreams(const PrefetchPolicy& prefetch, const std::byte* rows, int n_slots,
                                int64_t row_bytes) {
  if (prefetch.streams == 1) return;
  const int part = StreamSlots(n_slots, prefetch.streams);
  for (int stream = 0; stream < prefetch.streams; ++stream) {
    prefetch.Fetch(rows + stream * part * row_bytes,
                   std::min(prefetch.distance_bytes, n_slots * row_bytes));
    if (part == 0) return;
  }
}

}  // namespace winnow::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
