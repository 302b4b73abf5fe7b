// How one query goes over the rows of a cache: what both its passes share. Per-target include
// guard:
#if defined(WINNOW_KERNELS_CPU_PASSES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef WINNOW_KERNELS_CPU_PASSES_INL_H_
#undef WINNOW_KERNELS_CPU_PASSES_INL_H_
#else
#define WINNOW_KERNELS_CPU_PASSES_INL_H_
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/cpu/cache_rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace winnow::kernels::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Query heads that share a pass over the rows. Chosen so that the accumulators stay in registers.
constexpr int kHeadsPerPass = kLanes == 16 ? 7 : 3;

// Calls pass(h, HeadCount<n>()) for the heads [h, h + n) of a group, in as few passes as possible
// and all about as large.
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
// A chunk is read as this many streams, parts of its rows, in turns: a core reads memory in small
// pages a quarter to a half faster that way (docs/performance.md, the floor).
constexpr int kStreams = 4;
// Each stream is fetched this far ahead; the hardware's own prefetchers stop at pages.
constexpr int64_t kPrefetchBytes = 1024;

HWY_INLINE void PrefetchRows(const std::byte* from, int64_t n_bytes) {
  for (int64_t i = 0; i < n_bytes; i += 64) hwy::Prefetch(from + i);
}

// Slots of a stream, in whole tiles; the slots behind all streams come last.
constexpr int StreamSlots(int n_slots) { return n_slots / (kStreams * kLanes) * kLanes; }

// Calls tile(slot) for every whole tile of kLanes slots, taking turns between the streams.
template <class F>
HWY_INLINE void ForTiles(int n_slots, const F& tile) {
  const int part = StreamSlots(n_slots);
  for (int t = 0; t < part; t += kLanes) {
    for (int stream = 0; stream < kStreams; ++stream) tile(stream * part + t);
  }
  for (int slot = kStreams * part; slot + kLanes <= n_slots; slot += kLanes) tile(slot);
}

// Fetches the first rows of every stream.
HWY_INLINE void PrefetchStreams(const std::byte* rows, int n_slots, int64_t row_bytes) {
  const int part = StreamSlots(n_slots);
  for (int stream = 0; stream < kStreams; ++stream) {
    PrefetchRows(rows + stream * part * row_bytes, std::min(kPrefetchBytes, n_slots * row_bytes));
    if (part == 0) return;
  }
}

}  // namespace winnow::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
