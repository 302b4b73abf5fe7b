// Blocks of Q8_0 and Q4_0 keys with one row per lane, and their products with a query.
// Per-target include guard:
#if defined(WINNOW_KERNELS_CPU_KEY_BLOCKS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef WINNOW_KERNELS_CPU_KEY_BLOCKS_INL_H_
#undef WINNOW_KERNELS_CPU_KEY_BLOCKS_INL_H_
#else
#define WINNOW_KERNELS_CPU_KEY_BLOCKS_INL_H_
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/cpu/matmul/dot-inl.h"

HWY_BEFORE_NAMESPACE();
namespace winnow::kernels::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using DI32 = hn::ScalableTag<int32_t>;
using VI32 = hn::Vec<DI32>;

// 128-bit block b of the result holds the 16 bytes at bytes + 4 * b * stride.
HWY_INLINE VI32 LoadEveryFourth(const std::byte* bytes, int64_t stride) {
  const DI32 d;
  const hn::CappedTag<int32_t, 4> d128;
  const auto load = [&](int b) HWY_ATTR {
    return hn::LoadU(d128, reinterpret_cast<const int32_t*>(bytes + 4 * b * stride));
  };
#if HWY_MAX_BYTES == 16
  (void)d;
  return load(0);
#elif HWY_MAX_BYTES == 32
  return hn::Combine(d, load(1), load(0));
#else
  const hn::CappedTag<int32_t, 8> d256;
  return hn::Combine(d, hn::Combine(d256, load(3), load(2)), hn::Combine(d256, load(1), load(0)));
#endif
}

// Loads 16 bytes from each of kLanes rows that lie `stride` bytes apart: out[i] holds bytes 4 * i
// to 4 * i + 3 of all rows.
HWY_INLINE void LoadTransposed(const std::byte* bytes, int64_t stride, VI32* out) {
  const hn::RepartitionToWide<DI32> d64;
  VI32 rows[4];
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) rows[i] = LoadEveryFourth(bytes + i * stride, stride);
  const auto lower01 = hn::BitCast(d64, hn::InterleaveLower(DI32(), rows[0], rows[1]));
  const auto upper01 = hn::BitCast(d64, hn::InterleaveUpper(DI32(), rows[0], rows[1]));
  const auto lower23 = hn::BitCast(d64, hn::InterleaveLower(DI32(), rows[2], rows[3]));
  const auto upper23 = hn::BitCast(d64, hn::InterleaveUpper(DI32(), rows[2], rows[3]));
  out[0] = hn::BitCast(DI32(), hn::InterleaveLower(d64, lower01, lower23));
  out[1] = hn::BitCast(DI32(), hn::InterleaveUpper(d64, lower01, lower23));
  out[2] = hn::BitCast(DI32(), hn::InterleaveLower(d64, upper01, upper23));
  out[3] = hn::BitCast(DI32(), hn::InterleaveUpper(d64, upper01, upper23));
}

// DotNibbles(sum, a, q): in every lane, sum += a[0]*q[0] + ... + a[3]*q[3]; a: unsigned bytes
// 0..15, q: signed bytes. DotQ8(sum, PrepareQ8(a), q) + kQ8Offset * (q[0] + ... + q[3]): the same
// for signed bytes a within +-127.
#if HWY_TARGET == HWY_AVX3_DL

// The instruction needs one unsigned operand, so 128 is added to the keys.
constexpr int kQ8Offset = 128;
HWY_INLINE VI32 PrepareQ8(VI32 a) {
  return hn::Xor(a, hn::Set(DI32(), static_cast<int32_t>(0x80808080)));
}
HWY_INLINE VI32 DotQ8(VI32 sum, VI32 a, const int8_t* q) {
  return Dot4Broadcast(sum, hn::BitCast(hn::Repartition<uint8_t, DI32>(), a), q);
}
HWY_INLINE VI32 DotNibbles(VI32 sum, VI32 a, const int8_t* q) { return DotQ8(sum, a, q); }

#else

constexpr int kQ8Offset = 0;
HWY_INLINE VI32 PrepareQ8(VI32 a) { return a; }
HWY_INLINE hn::Vec<hn::Repartition<int8_t, DI32> > BroadcastFour(const int8_t* q) {
  int32_t four;
  std::memcpy(&four, q, sizeof(four));
  return hn::BitCast(hn::Repartition<int8_t, DI32>(), hn::Set(DI32(), four));
}
HWY_INLINE VI32 DotQ8(VI32 sum, VI32 a, const int8_t* q) {
  return Dot4Signed(sum, hn::BitCast(hn::Repartition<int8_t, DI32>(), a), BroadcastFour(q));
}
HWY_INLINE VI32 DotNibbles(VI32 sum, VI32 a, const int8_t* q) {
  return Dot4(sum, hn::BitCast(hn::Repartition<uint8_t, DI32>(), a), BroadcastFour(q));
}

#endif

}  // namespace winnow::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
