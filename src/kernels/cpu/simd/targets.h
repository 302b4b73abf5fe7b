#pragma once

// Selects the instruction sets to compile, and dispatches to one of them. Every file that is
// compiled per target includes this before Highway's headers.

#include <cstddef>
#include <cstdint>

#ifndef HWY_WANT_AVX3_DL
#define HWY_WANT_AVX3_DL  // has VNNI, for 8-bit products
#endif
// The fallback has vectors of at least 16 bytes, like the other targets. With GCC before 12.3,
// Highway would use one-lane vectors instead because of GCC bug 106322 (wrong code for the high
// half of products). No kernel here uses the high half.
#ifndef HWY_BROKEN_EMU128
#define HWY_BROKEN_EMU128 0
#endif
#ifndef HWY_DISABLED_TARGETS
// SSSE3 would only repeat SSE4; the kernels keep arrays of vectors, which sizeless SVE vectors
// forbid.
#define WINNOW_UNUSED_TARGETS (HWY_SSSE3 | HWY_SVE | HWY_SVE2 | HWY_SVE_256 | HWY_SVE2_128)
// A file without 8-bit products defines WINNOW_FLOAT_KERNELS: for AVX3_DL it would repeat AVX3.
#if defined(WINNOW_FLOAT_KERNELS)
#define HWY_DISABLED_TARGETS (WINNOW_UNUSED_TARGETS | HWY_AVX3_DL)
#elif defined(WINNOW_BF16_KERNELS)  // for CPUs with AVX3_DL and AVX512_BF16
#define HWY_DISABLED_TARGETS (WINNOW_UNUSED_TARGETS | HWY_AVX3 | HWY_AVX2)
#elif defined(WINNOW_FEW_TARGETS)  // only one target with 512-bit vectors
#define HWY_DISABLED_TARGETS (WINNOW_UNUSED_TARGETS | HWY_AVX3)
#else
#define HWY_DISABLED_TARGETS WINNOW_UNUSED_TARGETS
#endif
#endif

#include <hwy/targets.h>

namespace winnow::kernels::cpu {

// The entry of a HWY_EXPORT table for one target (a HWY_* bit), or for the next best target that
// the calling file is compiled for. Unlike HWY_DYNAMIC_DISPATCH it reads no global state, so two
// backends of one process may use different targets. Must be inline because HWY_TARGETS differs
// between files.
template <typename Function, size_t kEntries>
HWY_INLINE Function ForTarget(Function const (&table)[kEntries], int64_t target) {
  if constexpr (kEntries == 1) {
    return table[0];
  } else {
    hwy::ChosenTarget chosen;
    chosen.Update(-target);  // this bit and all higher ones, which are no better in Highway's order
    return table[chosen.GetIndex()];
  }
}

}  // namespace winnow::kernels::cpu
