// Transposes rows of floats to one row per lane. Per-target include guard:
#if defined(WINNOW_KERNELS_CPU_PACK_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef WINNOW_KERNELS_CPU_PACK_INL_H_
#undef WINNOW_KERNELS_CPU_PACK_INL_H_
#else
#define WINNOW_KERNELS_CPU_PACK_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>

#include "kernels/cpu/simd/cache_rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace winnow::kernels::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using DI = hn::RebindToSigned<DF>;

// kLanes rows of floats; row r starts at base + offsets[r].
struct LaneRows {
  const float* base = nullptr;
  const int32_t* offsets = nullptr;  // [kLanes]

  // Element i of every row.
  HWY_INLINE VF Load(int64_t i) const {
    return hn::GatherIndex(DF(), base + i, hn::LoadU(DI(), offsets));
  }
};

// 128-bit block b of the result holds elements [i, i + 4) of row 4 * b + row.
HWY_INLINE VF LoadFours(const LaneRows& rows, int row, int64_t i) {
  const hn::CappedTag<float, 4> d4;
  const auto load = [&](int b) HWY_ATTR {
    return hn::LoadU(d4, rows.base + rows.offsets[4 * b + row] + i);
  };
#if HWY_MAX_BYTES == 16
  return load(0);
#elif HWY_MAX_BYTES == 32
  return hn::Combine(DF(), load(1), load(0));
#else
  const hn::CappedTag<float, 8> d8;
  return hn::Combine(DF(), hn::Combine(d8, load(3), load(2)), hn::Combine(d8, load(1), load(0)));
#endif
}

// out[i * stride + lane] = element i of row `lane` times `scale`.
inline void PackRows(const LaneRows& rows, int dim, float scale, float* out, int64_t stride) {
  const DF df;
  const hn::RepartitionToWide<DF> d64;
  const VF factor = hn::Set(df, scale);
  int i = 0;
  for (; i + 4 <= dim; i += 4) {
    const VF a = LoadFours(rows, 0, i), b = LoadFours(rows, 1, i);
    const VF c = LoadFours(rows, 2, i), d = LoadFours(rows, 3, i);
    const auto ab_low = hn::BitCast(d64, hn::InterleaveLower(df, a, b));
    const auto ab_high = hn::BitCast(d64, hn::InterleaveUpper(df, a, b));
    const auto cd_low = hn::BitCast(d64, hn::InterleaveLower(df, c, d));
    const auto cd_high = hn::BitCast(d64, hn::InterleaveUpper(df, c, d));
    const auto store = [&](int at, auto fours) HWY_ATTR {
      hn::StoreU(hn::Mul(hn::BitCast(df, fours), factor), df, out + (i + at) * stride);
    };
    store(0, hn::InterleaveLower(d64, ab_low, cd_low));
    store(1, hn::InterleaveUpper(d64, ab_low, cd_low));
    store(2, hn::InterleaveLower(d64, ab_high, cd_high));
    store(3, hn::InterleaveUpper(d64, ab_high, cd_high));
  }
  for (; i < dim; ++i) hn::StoreU(hn::Mul(rows.Load(i), factor), df, out + i * stride);
}

}  // namespace winnow::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
