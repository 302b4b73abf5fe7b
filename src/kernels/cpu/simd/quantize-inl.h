// Converts floats to the cache types, with the same bits as Quantize (memory.h). Per-target include
// guard:
#if defined(WINNOW_KERNELS_CPU_QUANTIZE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef WINNOW_KERNELS_CPU_QUANTIZE_INL_H_
#undef WINNOW_KERNELS_CPU_QUANTIZE_INL_H_
#else
#define WINNOW_KERNELS_CPU_QUANTIZE_INL_H_
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>

#include "base/half.h"
#include "kernels/blocks.h"
#include "kernels/cpu/simd/cache_rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace winnow::kernels::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

inline void StoreBfloats(const float* x, int64_t n, uint16_t* out) {
  const hn::RebindToSigned<DF> di;
  const hn::RebindToUnsigned<DF> du;
  const hn::Rebind<uint16_t, DF> d16;
  int64_t i = 0;
  for (; i + kLanes <= n; i += kLanes) {
    const auto bits = hn::BitCast(du, hn::LoadU(DF(), x + i));
    const auto high = hn::ShiftRight<16>(bits);
    const auto half = hn::Add(hn::And(high, hn::Set(du, 1)), hn::Set(du, 0x7FFF));
    const auto rounded = hn::ShiftRight<16>(hn::Add(bits, half));
    const auto magnitude = hn::BitCast(di, hn::And(bits, hn::Set(du, 0x7FFFFFFF)));
    const auto is_nan = hn::RebindMask(du, hn::Gt(magnitude, hn::Set(di, 0x7F800000)));
    const auto result = hn::IfThenElse(is_nan, hn::Or(high, hn::Set(du, 0x40)), rounded);
    hn::StoreU(hn::DemoteTo(d16, hn::BitCast(di, result)), d16, out + i);
  }
  for (; i < n; ++i) out[i] = FloatToBfloat16(x[i]);
}

// Largest magnitude of a block of 32.
HWY_INLINE float MaxMagnitude32(const float* x) {
  const DF df;
  VF largest = hn::Abs(hn::LoadU(df, x));
  for (int i = kLanes; i < 32; i += kLanes) {
    largest = hn::Max(largest, hn::Abs(hn::LoadU(df, x + i)));
  }
  return hn::GetLane(hn::MaxOfLanes(df, largest));
}

// x * factor, clamped to +-limit. The product is within the limit anyway, up to rounding. The clamp
// keeps the compiler from fusing the product with the next operation, which would round once where
// the plain loop rounds twice.
HWY_INLINE VF Scaled(const float* x, VF factor, float limit) {
  const DF df;
  const VF product = hn::Mul(hn::LoadU(df, x), factor);
  return hn::Min(hn::Max(product, hn::Set(df, -limit)), hn::Set(df, limit));
}

inline void StoreQ8(const float* x, int64_t n, BlockQ8_0* out) {
  const DF df;
  const hn::RebindToSigned<DF> di;
  const hn::Rebind<int8_t, DF> d8;
  for (int64_t block = 0; block * 32 < n; ++block, x += 32, ++out) {
    const float d = MaxMagnitude32(x) / 127.0f;
    out->d = FloatToHalf(d);
    const VF inverse = hn::Set(df, d != 0 ? 1.0f / d : 0.0f);
    for (int i = 0; i < 32; i += kLanes) {
      const VF scaled = Scaled(x + i, inverse, 127.0f);
      // Round to nearest, ties away from zero.
      const VF whole = hn::Trunc(scaled);
      const auto up = hn::Ge(hn::Abs(hn::Sub(scaled, whole)), hn::Set(df, 0.5f));
      const VF step = hn::CopySign(hn::Set(df, 1.0f), scaled);
      const VF rounded = hn::Add(whole, hn::IfThenElseZero(up, step));
      hn::StoreU(hn::DemoteTo(d8, hn::ConvertTo(di, rounded)), d8, out->q + i);
    }
  }
}

// The first value of largest magnitude.
HWY_INLINE float ExtremeOf32(const float* x) {
  const DF df;
  const VF largest = hn::Set(df, MaxMagnitude32(x));
  for (int i = 0; i < 32; i += kLanes) {
    const intptr_t lane = hn::FindFirstTrue(df, hn::Eq(hn::Abs(hn::LoadU(df, x + i)), largest));
    if (lane >= 0) return x[i + lane];
  }
  return 0;  // only with NaN
}

inline void StoreQ4(const float* x, int64_t n, BlockQ4_0* out) {
  const DF df;
  const hn::RebindToSigned<DF> di;
  const hn::Rebind<uint8_t, DF> d8;
  for (int64_t block = 0; block * 32 < n; ++block, x += 32, ++out) {
    const float d = ExtremeOf32(x) / -8.0f;
    out->d = FloatToHalf(d);
    const VF inverse = hn::Set(df, d != 0 ? 1.0f / d : 0.0f);
    const auto levels = [&](int i) HWY_ATTR {
      const VF lifted = hn::Add(Scaled(x + i, inverse, 8.0f), hn::Set(df, 8.5f));
      return hn::Min(hn::ConvertTo(di, lifted), hn::Set(di, 15));
    };
    for (int i = 0; i < 16; i += kLanes) {
      const auto pairs = hn::Or(levels(i), hn::ShiftLeft<4>(levels(i + 16)));
      hn::StoreU(hn::DemoteTo(d8, pairs), d8, out->q + i);
    }
  }
}

}  // namespace winnow::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
