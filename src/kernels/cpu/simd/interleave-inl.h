// Transposes rows into tiles with one row per lane. Per-target include guard.
#if defined(WINNOW_KERNELS_CPU_INTERLEAVE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef WINNOW_KERNELS_CPU_INTERLEAVE_INL_H_
#undef WINNOW_KERNELS_CPU_INTERLEAVE_INL_H_
#else
#define WINNOW_KERNELS_CPU_INTERLEAVE_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>

HWY_BEFORE_NAMESPACE();
namespace winnow::kernels::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Rows of a tile: one per 32-bit lane.
inline constexpr int kLanes = HWY_MAX_BYTES / 4;

using Units = hn::FixedTag<uint32_t, kLanes>;

// Loads 16 bytes of row 0 into the first 128-bit block, of row 4 into the second, and so on.
// `stride` in bytes.
template <class D>
HWY_INLINE hn::Vec<D> LoadEveryFourthRow(D d, const uint8_t* p, int64_t stride) {
  if constexpr (hn::MaxLanes(d) == 4) {
    return hn::BitCast(d, hn::LoadU(hn::Repartition<uint8_t, D>(), p));
  } else {
    const hn::Half<D> half;
    constexpr int kRows = static_cast<int>(hn::MaxLanes(d)) / 2;  // rows up to the upper half
    return hn::Combine(d, LoadEveryFourthRow(half, p + kRows * stride, stride),
                       LoadEveryFourthRow(half, p, stride));
  }
}

// units[i] holds bytes 4 * i to 4 * i + 3 of kLanes rows that begin `stride` bytes apart.
HWY_INLINE void LoadUnits(const uint8_t* from, int64_t stride, hn::Vec<Units> (&units)[4]) {
  const Units d32;
  const hn::FixedTag<uint64_t, kLanes / 2> d64;
  const auto r0 = LoadEveryFourthRow(d32, from, stride);
  const auto r1 = LoadEveryFourthRow(d32, from + stride, stride);
  const auto r2 = LoadEveryFourthRow(d32, from + 2 * stride, stride);
  const auto r3 = LoadEveryFourthRow(d32, from + 3 * stride, stride);
  const auto low01 = hn::BitCast(d64, hn::InterleaveLower(d32, r0, r1));
  const auto low23 = hn::BitCast(d64, hn::InterleaveLower(d32, r2, r3));
  const auto high01 = hn::BitCast(d64, hn::InterleaveUpper(d32, r0, r1));
  const auto high23 = hn::BitCast(d64, hn::InterleaveUpper(d32, r2, r3));
  units[0] = hn::BitCast(d32, hn::InterleaveLower(d64, low01, low23));
  units[1] = hn::BitCast(d32, hn::InterleaveUpper(d64, low01, low23));
  units[2] = hn::BitCast(d32, hn::InterleaveLower(d64, high01, high23));
  units[3] = hn::BitCast(d32, hn::InterleaveUpper(d64, high01, high23));
}

// to[u * to_stride + r] = from[r * stride + u] for kLanes rows r and n units u. Requires: n % 4 ==
// 0; `to` aligned.
HWY_INLINE void Interleave(const uint32_t* from, int64_t stride, int64_t n, uint32_t* to,
                           int64_t to_stride) {
  for (int64_t u = 0; u < n; u += 4) {
    hn::Vec<Units> units[4];
    LoadUnits(reinterpret_cast<const uint8_t*>(from + u), 4 * stride, units);
    for (int i = 0; i < 4; ++i) hn::Store(units[i], Units(), to + (u + i) * to_stride);
  }
}

}  // namespace winnow::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
