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

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/cache_rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace winnow::kernels::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Query heads that share a pass over the rows. Chosen so that the accumulators stay in registers.
constexpr int kHeadsPerPass = kLanes == 16 ? 4 : 3;
// Keys and values are fetched this far ahead; the hardware's own prefetchers stop at pages.
constexpr int64_t kPrefetchBytes = 2048;

HWY_INLINE void PrefetchRows(const std::byte* from, int64_t n_bytes) {
  for (int64_t i = 0; i < n_bytes; i += 64) hwy::Prefetch(from + i);
}

}  // namespace winnow::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
