// Dot products of unsigned or signed bytes with signed bytes, which Highway 1.0.3 lacks. Per-target
// include guard.
#if defined(WINNOW_KERNELS_CPU_DOT_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef WINNOW_KERNELS_CPU_DOT_INL_H_
#undef WINNOW_KERNELS_CPU_DOT_INL_H_
#else
#define WINNOW_KERNELS_CPU_DOT_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>

#include "kernels/cpu/simd/opaque-inl.h"

HWY_BEFORE_NAMESPACE();
namespace winnow::kernels::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Whether Dot4 accepts all unsigned bytes, in one instruction. Without VNNI, weights above 127
// would overflow 16-bit sums on x86.
inline constexpr bool kHasVnni = HWY_TARGET == HWY_AVX3_DL;

// VU, VS, VW, VI: vectors of equal size of uint8_t, int8_t, int16_t, int32_t.
//
// Dot4: in every 32-bit lane, sum += the products of its four bytes of `w` and `x`.
//       Requires: w <= 127 unless kHasVnni.
// Dot4Signed: the same for signed `w`. Requires: x >= -127.
// DotPairs (x86 without VNNI): adds the products of pairs of bytes in 16-bit lanes. Requires: no
// overflow. SumPairs then adds them up in 32-bit lanes.

#if HWY_TARGET == HWY_AVX3_DL

// Highway compiles this target without the compiler flag for 512-bit VNNI, so its intrinsics are
// not available.
template <class VI, class VU, class VS>
HWY_INLINE VI Dot4(VI sum, VU w, VS x) {
  asm("vpdpbusd %2, %1, %0" : "+v"(sum.raw) : "v"(w.raw), "vm"(x.raw));
  return sum;
}

// The same with four bytes for all lanes, broadcast from memory.
template <class VI, class VU>
HWY_INLINE VI Dot4Broadcast(VI sum, VU w, const int8_t* x) {
  if constexpr (sizeof(sum.raw) == 64) {
    asm("vpdpbusd %2%{1to16%}, %1, %0"
        : "+v"(sum.raw)
        : "v"(w.raw), "m"(*reinterpret_cast<const int8_t(*)[4]>(x)));
  } else {
    asm("vpdpbusd %2%{1to8%}, %1, %0"
        : "+v"(sum.raw)
        : "v"(w.raw), "m"(*reinterpret_cast<const int8_t(*)[4]>(x)));
  }
  return sum;
}

template <class VI, class VS>
HWY_INLINE VI Dot4Signed(VI sum, VS w, VS x) {
  static_assert(sizeof(w.raw) == 32);
  sum = Dot4(sum, hn::Abs(w), VS{_mm256_sign_epi8(x.raw, w.raw)});
  return sum;
}

#elif HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_SSE4

#if HWY_TARGET == HWY_AVX3
HWY_INLINE __m512i MultiplyPairs(__m512i w, __m512i x) { return _mm512_maddubs_epi16(w, x); }
HWY_INLINE __m512i AddPairs(__m512i pairs) {
  return _mm512_madd_epi16(pairs, _mm512_set1_epi16(1));
}
// The sign of w, moved to x: there is no instruction for it at this width.
HWY_INLINE __m512i MoveSign(__m512i x, __m512i w) {
  return _mm512_mask_sub_epi8(x, _mm512_movepi8_mask(w), _mm512_setzero_si512(), x);
}
#endif
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX2
HWY_INLINE __m256i MultiplyPairs(__m256i w, __m256i x) { return _mm256_maddubs_epi16(w, x); }
HWY_INLINE __m256i AddPairs(__m256i pairs) {
  return _mm256_madd_epi16(pairs, _mm256_set1_epi16(1));
}
HWY_INLINE __m256i MoveSign(__m256i x, __m256i w) { return _mm256_sign_epi8(x, w); }
#endif
HWY_INLINE __m128i MultiplyPairs(__m128i w, __m128i x) { return _mm_maddubs_epi16(w, x); }
HWY_INLINE __m128i AddPairs(__m128i pairs) { return _mm_madd_epi16(pairs, _mm_set1_epi16(1)); }
HWY_INLINE __m128i MoveSign(__m128i x, __m128i w) { return _mm_sign_epi8(x, w); }

template <class VW, class VU, class VS>
HWY_INLINE VW DotPairs(VW sum, VU w, VS x) {
  return Opaque(hn::Add(sum, VW{MultiplyPairs(w.raw, x.raw)}));
}

template <class VI, class VW>
HWY_INLINE VI SumPairs(VI sum, VW pairs) {
  return Opaque(hn::Add(sum, VI{AddPairs(pairs.raw)}));
}

template <class VI, class VU, class VS>
HWY_INLINE VI Dot4(VI sum, VU w, VS x) {
  return Opaque(hn::Add(sum, VI{AddPairs(MultiplyPairs(w.raw, x.raw))}));
}

template <class VI, class VS>
HWY_INLINE VI Dot4Signed(VI sum, VS w, VS x) {
  return Opaque(hn::Add(sum, VI{AddPairs(MultiplyPairs(hn::Abs(w).raw, MoveSign(x.raw, w.raw)))}));
}

#elif HWY_TARGET == HWY_NEON && HWY_ARCH_ARM_A64

template <class VI, class VS>
HWY_INLINE VI Dot4Signed(VI sum, VS w, VS x) {
#if defined(__ARM_FEATURE_DOTPROD)  // builds for Armv8.2 and later
  return VI{vdotq_s32(sum.raw, w.raw, x.raw)};
#endif
  const int16x8_t low = vmull_s8(vget_low_s8(w.raw), vget_low_s8(x.raw));
  const int16x8_t high = vmull_high_s8(w.raw, x.raw);
  return hn::Add(sum, VI{vpaddq_s32(vpaddlq_s16(low), vpaddlq_s16(high))});
}

template <class VI, class VU, class VS>
HWY_INLINE VI Dot4(VI sum, VU w, VS x) {
  return Dot4Signed(sum, VS{vreinterpretq_s8_u8(w.raw)}, x);
}

#else  // other targets: one lane at a time

template <class VI, class VS>
HWY_INLINE VI Dot4Signed(VI sum, VS w, VS x) {
  const hn::FixedTag<int8_t, 16> d8;
  const hn::FixedTag<int32_t, 4> d32;
  int8_t a[16], b[16];
  int32_t sums[4];
  hn::StoreU(w, d8, a);
  hn::StoreU(x, d8, b);
  hn::StoreU(sum, d32, sums);
  for (int i = 0; i < 16; ++i) sums[i / 4] += a[i] * b[i];
  return hn::LoadU(d32, sums);
}

template <class VI, class VU, class VS>
HWY_INLINE VI Dot4(VI sum, VU w, VS x) {
  return Dot4Signed(sum, hn::BitCast(hn::FixedTag<int8_t, 16>(), w), x);
}

#endif

}  // namespace winnow::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
