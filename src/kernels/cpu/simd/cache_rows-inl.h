// Loads rows of the cache types as vectors of floats. Per-target include guard:
#if defined(WINNOW_KERNELS_CPU_CACHE_ROWS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef WINNOW_KERNELS_CPU_CACHE_ROWS_INL_H_
#undef WINNOW_KERNELS_CPU_CACHE_ROWS_INL_H_
#else
#define WINNOW_KERNELS_CPU_CACHE_ROWS_INL_H_
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

HWY_BEFORE_NAMESPACE();
namespace winnow::kernels::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using DF = hn::ScalableTag<float>;
using VF = hn::Vec<DF>;
constexpr int kLanes = static_cast<int>(hn::MaxLanes(DF()));
static_assert(kLanes == 4 || kLanes == 8 || kLanes == 16);

// Types without blocks: F32, F16, BF16.
struct F32Elements {
  static constexpr int kBytes = 4;
  static HWY_INLINE VF Load(const std::byte* from) {
    return hn::LoadU(DF(), reinterpret_cast<const float*>(from));
  }
};

struct F16Elements {
  static constexpr int kBytes = 2;
  static HWY_INLINE VF Load(const std::byte* from) {
    const hn::Rebind<hwy::float16_t, DF> d16;
    return hn::PromoteTo(DF(), hn::LoadU(d16, reinterpret_cast<const hwy::float16_t*>(from)));
  }
};

struct Bf16Elements {
  static constexpr int kBytes = 2;
  static HWY_INLINE VF Load(const std::byte* from) {
    const hn::RebindToUnsigned<DF> d32;
    const hn::Rebind<uint16_t, DF> d16;
    const auto bits = hn::LoadU(d16, reinterpret_cast<const uint16_t*>(from));
    return hn::BitCast(DF(), hn::ShiftLeft<16>(hn::PromoteTo(d32, bits)));
  }
};

// The first n < kLanes elements, followed by zeros; reads nothing past them.
template <class Elements>
HWY_INLINE VF LoadFirst(const std::byte* from, int n) {
  alignas(64) std::byte copy[kLanes * Elements::kBytes] = {};
  std::memcpy(copy, from, static_cast<size_t>(n) * Elements::kBytes);
  return Elements::Load(copy);
}

// The scale of a block of 32 elements, in every lane; it is a half at the start of the block.
HWY_INLINE VF LoadScale(const std::byte* block) {
  const hn::CappedTag<float, 1> d1;
  const hn::Rebind<hwy::float16_t, decltype(d1)> d16;
  const auto half = hn::LoadU(d16, reinterpret_cast<const hwy::float16_t*>(block));
  return hn::Set(DF(), hn::GetLane(hn::PromoteTo(d1, half)));
}

// Elements [part * kLanes, (part + 1) * kLanes) of a block as integer-valued floats, without the
// scale.
struct Q8Block {
  static constexpr int kBytes = 34;
  static HWY_INLINE VF Load(const std::byte* block, int part) {
    const hn::Rebind<int8_t, DF> d8;
    const hn::RebindToSigned<DF> d32;
    const auto* values = reinterpret_cast<const int8_t*>(block + 2) + part * kLanes;
    return hn::ConvertTo(DF(), hn::PromoteTo(d32, hn::LoadU(d8, values)));
  }
};

struct Q4Block {
  static constexpr int kBytes = 18;
  // Elements 0..15 are the low nibbles of the 16 bytes, 16..31 the high nibbles; both minus 8.
  static HWY_INLINE VF Load(const std::byte* block, int part) {
    const hn::Rebind<uint8_t, DF> d8;
    const hn::RebindToSigned<DF> d32;
    const int first = part * kLanes;
    const auto* bytes = reinterpret_cast<const uint8_t*>(block + 2) + first % 16;
    const auto pairs = hn::PromoteTo(d32, hn::LoadU(d8, bytes));
    const auto nibbles = first < 16 ? hn::And(pairs, hn::Set(d32, 15)) : hn::ShiftRight<4>(pairs);
    return hn::ConvertTo(DF(), hn::Sub(nibbles, hn::Set(d32, 8)));
  }
};

// The scales, as bits, of eight blocks that lie `stride` bytes apart. Assembles them in registers:
// loading a vector that was just stored in parts stalls on store forwarding.
#if HWY_TARGET == HWY_AVX3_DL || HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX2
HWY_INLINE hn::Vec<hn::FixedTag<uint16_t, 8>> LoadEightScales(const std::byte* blocks,
                                                              int64_t stride) {
  const auto scale = [&](int i) HWY_ATTR {
    uint16_t bits;
    std::memcpy(&bits, blocks + i * stride, sizeof(bits));
    return bits;
  };
  __m128i v = _mm_cvtsi32_si128(scale(0));
  v = _mm_insert_epi16(v, scale(1), 1);
  v = _mm_insert_epi16(v, scale(2), 2);
  v = _mm_insert_epi16(v, scale(3), 3);
  v = _mm_insert_epi16(v, scale(4), 4);
  v = _mm_insert_epi16(v, scale(5), 5);
  v = _mm_insert_epi16(v, scale(6), 6);
  v = _mm_insert_epi16(v, scale(7), 7);
  return hn::Vec<hn::FixedTag<uint16_t, 8>>{v};
}
#endif

// The scales of kLanes blocks that lie `stride` bytes apart.
HWY_INLINE VF LoadScales(const std::byte* blocks, int64_t stride) {
#if HWY_TARGET == HWY_AVX3_DL || HWY_TARGET == HWY_AVX3
  const auto bits =
      hn::Combine(hn::FixedTag<uint16_t, 16>(), LoadEightScales(blocks + 8 * stride, stride),
                  LoadEightScales(blocks, stride));
  return hn::PromoteTo(DF(), hn::BitCast(hn::Rebind<hwy::float16_t, DF>(), bits));
#elif HWY_TARGET == HWY_AVX2
  return hn::PromoteTo(
      DF(), hn::BitCast(hn::Rebind<hwy::float16_t, DF>(), LoadEightScales(blocks, stride)));
#else
  alignas(64) uint16_t bits[kLanes];
#pragma GCC unroll 16
  for (int i = 0; i < kLanes; ++i) std::memcpy(&bits[i], blocks + i * stride, sizeof(uint16_t));
  return F16Elements::Load(reinterpret_cast<const std::byte*>(bits));
#endif
}

}  // namespace winnow::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
