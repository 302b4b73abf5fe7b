// Quantised weights in registers: one policy per block type, used by the products of few rows
// (straight from the file's blocks) and of many rows (unpacked to tiles). Per-target include guard.
#if defined(WINNOW_KERNELS_CPU_WEIGHTS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef WINNOW_KERNELS_CPU_WEIGHTS_INL_H_
#undef WINNOW_KERNELS_CPU_WEIGHTS_INL_H_
#else
#define WINNOW_KERNELS_CPU_WEIGHTS_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>
#include <cstring>

#include "kernels/blocks.h"
#include "kernels/cpu/matmul/dot-inl.h"
#include "kernels/ops.h"

HWY_BEFORE_NAMESPACE();
namespace winnow::kernels::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// The 32 weights of a group are in one vector of 32 bytes, or in two of 16 on targets without
// larger ones.
#if HWY_MAX_BYTES >= 32
inline constexpr int kParts = 1;
#else
inline constexpr int kParts = 2;
#endif
using D8 = hn::FixedTag<uint8_t, 32 / kParts>;
using DS8 = hn::FixedTag<int8_t, 32 / kParts>;
using D16 = hn::FixedTag<uint16_t, 16 / kParts>;
using D32 = hn::FixedTag<int32_t, 8 / kParts>;
using DF8 = hn::FixedTag<float, 8 / kParts>;
using V8 = hn::Vec<D8>;

struct Bytes32 {
  V8 part[kParts];  // elements in order
};

HWY_INLINE float LoadHalf(uint16_t bits) {
  const hn::FixedTag<uint16_t, 4> d16;
  const hn::FixedTag<float, 4> df;
  return hn::GetLane(
      hn::PromoteTo(df, hn::BitCast(hn::FixedTag<hwy::float16_t, 4>(), hn::Set(d16, bits))));
}

// Four halves at once, the first in the lowest bits.
using DF4 = hn::FixedTag<float, 4>;
HWY_INLINE hn::Vec<DF4> LoadHalves(uint64_t bits) {
  const hn::FixedTag<uint64_t, 1> d64;
  return hn::PromoteTo(DF4(), hn::BitCast(hn::FixedTag<hwy::float16_t, 4>(), hn::Set(d64, bits)));
}

// Shifts every byte left by kLeft (right if negative), then masks it with kMask.
template <int kLeft, int kMask>
HWY_INLINE V8 ShiftAnd(V8 v) {
  const D16 d16;
  const V8 mask = hn::Set(D8(), static_cast<uint8_t>(kMask));
  if constexpr (kLeft > 0) v = hn::BitCast(D8(), hn::ShiftLeft<kLeft>(hn::BitCast(d16, v)));
  if constexpr (kLeft < 0) v = hn::BitCast(D8(), hn::ShiftRight<-kLeft>(hn::BitCast(d16, v)));
  return hn::And(v, mask);
}

HWY_INLINE Bytes32 LoadBytes(const uint8_t* p) {
  Bytes32 out;
  for (int i = 0; i < kParts; ++i) out.part[i] = hn::LoadU(D8(), p + i * 32 / kParts);
  return out;
}

HWY_INLINE void StoreBytes(const Bytes32& v, uint8_t* p) {
  for (int i = 0; i < kParts; ++i) hn::StoreU(v.part[i], D8(), p + i * 32 / kParts);
}

template <int kLeft, int kMask>
HWY_INLINE Bytes32 ShiftAnd(const Bytes32& v) {
  Bytes32 out;
  for (int i = 0; i < kParts; ++i) out.part[i] = ShiftAnd<kLeft, kMask>(v.part[i]);
  return out;
}

HWY_INLINE Bytes32 Or(const Bytes32& a, const Bytes32& b) {
  Bytes32 out;
  for (int i = 0; i < kParts; ++i) out.part[i] = hn::Or(a.part[i], b.part[i]);
  return out;
}

// 16 bytes: the low nibbles are elements 0..15, the high ones 16..31.
HWY_INLINE Bytes32 LoadNibbles(const uint8_t* p) {
  Bytes32 out;
#if HWY_MAX_BYTES >= 32
  const hn::FixedTag<uint32_t, 8> d32;
  alignas(32) static constexpr uint32_t kShifts[8] = {0, 0, 0, 0, 4, 4, 4, 4};
  const auto both = hn::BitCast(d32, hn::LoadDup128(D8(), p)) >> hn::Load(d32, kShifts);
  out.part[0] = hn::And(hn::BitCast(D8(), both), hn::Set(D8(), 15));
#else
  const V8 both = hn::LoadU(D8(), p);
  out.part[0] = ShiftAnd<0, 15>(both);
  out.part[1] = ShiftAnd<-4, 15>(both);
#endif
  return out;
}

// Adds 16 to element e if bit e of `bits` is set. Requires: eight bytes at `bits` are readable.
HWY_INLINE Bytes32 AddFifthBits(Bytes32 v, const uint8_t* bits) {
  for (int i = 0; i < kParts; ++i) {
    const auto mask = hn::LoadMaskBits(D8(), bits + i * 4 / kParts);
    v.part[i] = hn::Or(v.part[i], hn::IfThenElseZero(mask, hn::Set(D8(), 16)));
  }
  return v;
}

// out[i] = d * (bytes[i] - offset) for n bytes. Requires: n % 8 == 0.
template <class Byte>
HWY_INLINE void ScaleBytes(const void* bytes, int n, int offset, float d, float* out) {
  const hn::Rebind<Byte, D32> d8;
  constexpr int kStep = 8 / kParts;
  for (int i = 0; i < n; i += kStep) {
    const auto v = hn::LoadU(d8, static_cast<const Byte*>(bytes) + i);
    const auto value = hn::Sub(hn::PromoteTo(D32(), v), hn::Set(D32(), offset));
    hn::StoreU(hn::Mul(hn::ConvertTo(DF8(), value), hn::Set(DF8(), d)), DF8(), out + i);
  }
}

HWY_INLINE Bytes32 IQ4Levels(Bytes32 v) {
  const V8 levels = hn::BitCast(D8(), hn::LoadDup128(DS8(), kIQ4Levels));
  for (V8& part : v.part) part = hn::TableLookupBytes(levels, part);
  return v;
}

// A policy describes one type:
//   Block, kGroups             a block holds kGroups groups of 32 elements
//   kScalesPerGroup            1, or 2: one for each half of a group
//   kSigned                    bytes are int8_t; otherwise unsigned and below 1 << kBits
//   kOffset                    the value is scale * (byte - kOffset) ...
//   kHasMin                    ... or scale * byte + min
//   Load<G>(block)             bytes of group G
//   Scales(block, s, m)        scales of the block, and mins where there are any

struct PolicyQ4_0 {
  using Block = BlockQ4_0;
  static constexpr int kGroups = 1, kScalesPerGroup = 1, kBits = 4, kOffset = 8;
  static constexpr bool kSigned = false, kHasMin = false;
  template <int G>
  static HWY_INLINE Bytes32 Load(const Block& b) {
    return LoadNibbles(b.q);
  }
  static HWY_INLINE void Scales(const Block& b, float* s, float*) { s[0] = LoadHalf(b.d); }
};

struct PolicyQ4_1 {
  using Block = BlockQ4_1;
  static constexpr int kGroups = 1, kScalesPerGroup = 1, kBits = 4, kOffset = 0;
  static constexpr bool kSigned = false, kHasMin = true;
  template <int G>
  static HWY_INLINE Bytes32 Load(const Block& b) {
    return LoadNibbles(b.q);
  }
  static HWY_INLINE void Scales(const Block& b, float* s, float* m) {
    s[0] = LoadHalf(b.d);
    m[0] = LoadHalf(b.m);
  }
};

struct PolicyQ5_0 {
  using Block = BlockQ5_0;
  static constexpr int kGroups = 1, kScalesPerGroup = 1, kBits = 5, kOffset = 16;
  static constexpr bool kSigned = false, kHasMin = false;
  template <int G>
  static HWY_INLINE Bytes32 Load(const Block& b) {
    return AddFifthBits(LoadNibbles(b.q), b.high);
  }
  static HWY_INLINE void Scales(const Block& b, float* s, float*) { s[0] = LoadHalf(b.d); }
};

struct PolicyQ5_1 {
  using Block = BlockQ5_1;
  static constexpr int kGroups = 1, kScalesPerGroup = 1, kBits = 5, kOffset = 0;
  static constexpr bool kSigned = false, kHasMin = true;
  template <int G>
  static HWY_INLINE Bytes32 Load(const Block& b) {
    return AddFifthBits(LoadNibbles(b.q), b.high);
  }
  static HWY_INLINE void Scales(const Block& b, float* s, float* m) {
    s[0] = LoadHalf(b.d);
    m[0] = LoadHalf(b.m);
  }
};

struct PolicyQ8_0 {
  using Block = BlockQ8_0;
  static constexpr int kGroups = 1, kScalesPerGroup = 1, kBits = 8, kOffset = 0;
  static constexpr bool kSigned = true, kHasMin = false;
  template <int G>
  static HWY_INLINE Bytes32 Load(const Block& b) {
    return LoadBytes(reinterpret_cast<const uint8_t*>(b.q));
  }
  static HWY_INLINE void Scales(const Block& b, float* s, float*) { s[0] = LoadHalf(b.d); }
};

struct PolicyIQ4_NL {
  using Block = BlockIQ4_NL;
  static constexpr int kGroups = 1, kScalesPerGroup = 1, kBits = 8, kOffset = 0;
  static constexpr bool kSigned = true, kHasMin = false;
  template <int G>
  static HWY_INLINE Bytes32 Load(const Block& b) {
    return IQ4Levels(LoadNibbles(b.q));
  }
  static HWY_INLINE void Scales(const Block& b, float* s, float*) { s[0] = LoadHalf(b.d); }
};

struct PolicyIQ4_XS {
  using Block = BlockIQ4_XS;
  static constexpr int kGroups = 8, kScalesPerGroup = 1, kBits = 8, kOffset = 0;
  static constexpr bool kSigned = true, kHasMin = false;
  template <int G>
  static HWY_INLINE Bytes32 Load(const Block& b) {
    return IQ4Levels(LoadNibbles(b.q + 16 * G));
  }
  static HWY_INLINE void Scales(const Block& b, float* s, float*) {
    const float d = LoadHalf(b.d);
    for (int g = 0; g < 8; ++g) s[g] = d * static_cast<float>(ScaleIQ4_XS(b, g));
  }
};

// In Q4_K and Q5_K, two 4-bit groups share 32 bytes.
template <int G>
HWY_INLINE Bytes32 LoadNibblesK(const uint8_t* q) {
  return ShiftAnd < G % 2 == 0 ? 0 : -4, 15 > (LoadBytes(q + 32 * (G / 2)));
}

// UnpackScales4K in vectors, times d and -dmin. Requires: the block starts with two halves and the
// 12 bytes of scales.
template <class Block>
HWY_INLINE void Scales4K(const Block& b, float* s, float* m) {
  const hn::FixedTag<uint8_t, 16> d8;
  const hn::FixedTag<uint32_t, 4> d32;
  // Source bytes of the lower bits of scales 0..3, scales 4..7, mins 0..3 and mins 4..7 (kLow), and
  // of their upper two bits (kHigh; 128: none).
  alignas(16) static constexpr uint8_t kLow[16] = {4, 5, 6,  7,  12, 13, 14, 15,
                                                   8, 9, 10, 11, 12, 13, 14, 15};
  alignas(16) static constexpr uint8_t kHigh[16] = {128, 128, 128, 128, 4, 5, 6,  7,
                                                    128, 128, 128, 128, 8, 9, 10, 11};
  alignas(16) static constexpr uint32_t kShifts[4] = {0, 0, 0, 4};
  alignas(16) static constexpr uint32_t kMasks[4] = {0x3F3F3F3F, 0x0F0F0F0F, 0x3F3F3F3F,
                                                     0x0F0F0F0F};
  const auto head = hn::LoadU(d8, reinterpret_cast<const uint8_t*>(&b));
  const auto low = hn::BitCast(d32, hn::TableLookupBytes(head, hn::Load(d8, kLow)));
  const auto high = hn::BitCast(d32, hn::TableLookupBytesOr0(head, hn::Load(d8, kHigh)));
  HWY_ALIGN uint8_t six_bits[16];
  hn::Store(hn::BitCast(d8, hn::Or(hn::And(low >> hn::Load(d32, kShifts), hn::Load(d32, kMasks)),
                                   hn::And(hn::ShiftRight<2>(high), hn::Set(d32, 0x30303030)))),
            d8, six_bits);
  ScaleBytes<uint8_t>(six_bits, 8, 0, LoadHalf(b.d), s);
  ScaleBytes<uint8_t>(six_bits + 8, 8, 0, -LoadHalf(b.dmin), m);
}

struct PolicyQ4_K {
  using Block = BlockQ4_K;
  static constexpr int kGroups = 8, kScalesPerGroup = 1, kBits = 4, kOffset = 0;
  static constexpr bool kSigned = false, kHasMin = true;
  template <int G>
  static HWY_INLINE Bytes32 Load(const Block& b) {
    return LoadNibblesK<G>(b.q);
  }
  static HWY_INLINE void Scales(const Block& b, float* s, float* m) { Scales4K(b, s, m); }
};

struct PolicyQ5_K {
  using Block = BlockQ5_K;
  static constexpr int kGroups = 8, kScalesPerGroup = 1, kBits = 5, kOffset = 0;
  static constexpr bool kSigned = false, kHasMin = true;
  template <int G>
  static HWY_INLINE Bytes32 Load(const Block& b) {
    return Or(LoadNibblesK<G>(b.q), ShiftAnd<4 - G, 16>(LoadBytes(b.high)));
  }
  static HWY_INLINE void Scales(const Block& b, float* s, float* m) { Scales4K(b, s, m); }
};

struct PolicyQ6_K {
  using Block = BlockQ6_K;
  static constexpr int kGroups = 8, kScalesPerGroup = 2, kBits = 6, kOffset = 32;
  static constexpr bool kSigned = false, kHasMin = false;
  template <int G>
  static HWY_INLINE Bytes32 Load(const Block& b) {
    constexpr int kHalf = G / 4, kQuarter = G % 4;
    const Bytes32 low = LoadBytes(b.q + 64 * kHalf + 32 * (kQuarter % 2));
    const Bytes32 high = LoadBytes(b.high + 32 * kHalf);
    return Or(ShiftAnd < kQuarter < 2 ? 0 : -4, 15 > (low), ShiftAnd<4 - 2 * kQuarter, 48>(high));
  }
  static HWY_INLINE void Scales(const Block& b, float* s, float*) {
    ScaleBytes<int8_t>(b.scales, 16, 0, LoadHalf(b.d), s);
  }
};

struct PolicyQ3_K {
  using Block = BlockQ3_K;
  static constexpr int kGroups = 8, kScalesPerGroup = 2, kBits = 3, kOffset = 4;
  static constexpr bool kSigned = false, kHasMin = false;
  template <int G>
  static HWY_INLINE Bytes32 Load(const Block& b) {
    return Or(ShiftAnd<-2 * (G % 4), 3>(LoadBytes(b.q + 32 * (G / 4))),
              ShiftAnd<2 - G, 4>(LoadBytes(b.high)));
  }
  static HWY_INLINE void Scales(const Block& b, float* s, float*) {
    const Scales3K scales = UnpackScales3K(b.scales);
    const float d = LoadHalf(b.d);
    ScaleBytes<uint8_t>(&scales.low, 8, 32, d, s);
    ScaleBytes<uint8_t>(&scales.high, 8, 32, d, s + 8);
  }
};

struct PolicyQ2_K {
  using Block = BlockQ2_K;
  static constexpr int kGroups = 8, kScalesPerGroup = 2, kBits = 2, kOffset = 0;
  static constexpr bool kSigned = false, kHasMin = true;
  template <int G>
  static HWY_INLINE Bytes32 Load(const Block& b) {
    return ShiftAnd<-2 * (G % 4), 3>(LoadBytes(b.q + 32 * (G / 4)));
  }
  static HWY_INLINE void Scales(const Block& b, float* s, float* m) {
    const hn::FixedTag<uint8_t, 16> d8;
    const hn::FixedTag<uint16_t, 8> d16;
    const auto both = hn::LoadU(d8, b.scales), nibble = hn::Set(d8, 15);
    HWY_ALIGN uint8_t scales[16], mins[16];
    hn::Store(hn::And(both, nibble), d8, scales);
    const auto high = hn::BitCast(d8, hn::ShiftRight<4>(hn::BitCast(d16, both)));
    hn::Store(hn::And(high, nibble), d8, mins);
    ScaleBytes<uint8_t>(scales, 16, 0, LoadHalf(b.d), s);
    ScaleBytes<uint8_t>(mins, 16, 0, -LoadHalf(b.dmin), m);
  }
};

// Calls function(policy) for a quantised type.
template <class F>
HWY_INLINE void WithPolicy(TensorType type, const F& function) {
  switch (type) {
    case TensorType::kQ4_0:
      return function(PolicyQ4_0());
    case TensorType::kQ4_1:
      return function(PolicyQ4_1());
    case TensorType::kQ5_0:
      return function(PolicyQ5_0());
    case TensorType::kQ5_1:
      return function(PolicyQ5_1());
    case TensorType::kQ8_0:
      return function(PolicyQ8_0());
    case TensorType::kQ2_K:
      return function(PolicyQ2_K());
    case TensorType::kQ3_K:
      return function(PolicyQ3_K());
    case TensorType::kQ4_K:
      return function(PolicyQ4_K());
    case TensorType::kQ5_K:
      return function(PolicyQ5_K());
    case TensorType::kQ6_K:
      return function(PolicyQ6_K());
    case TensorType::kIQ4_NL:
      return function(PolicyIQ4_NL());
    case TensorType::kIQ4_XS:
      return function(PolicyIQ4_XS());
    case TensorType::kF32:
    case TensorType::kF16:
    case TensorType::kBF16:
      WINNOW_CHECK(false);
  }
}

}  // namespace winnow::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
