// Sums or maxima over the lanes of several vectors at once. Per-target include guard:
#if defined(WINNOW_KERNELS_CPU_LANE_SUMS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef WINNOW_KERNELS_CPU_LANE_SUMS_INL_H_
#undef WINNOW_KERNELS_CPU_LANE_SUMS_INL_H_
#else
#define WINNOW_KERNELS_CPU_LANE_SUMS_INL_H_
#endif

#include <hwy/highway.h>

#include "kernels/cpu/simd/cache_rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace winnow::kernels::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Operations that join lanes.
struct Add {
  HWY_INLINE VF operator()(VF a, VF b) const { return hn::Add(a, b); }
};
struct Max {
  HWY_INLINE VF operator()(VF a, VF b) const { return hn::Max(a, b); }
};

// [a b c d] per 128-bit block, each joined over the block's four lanes.
template <class Join>
HWY_INLINE VF JoinFour(VF a, VF b, VF c, VF d) {
  const DF df;
  const hn::RepartitionToWide<DF> d64;
  const Join join;
  const VF ab = join(hn::InterleaveLower(df, a, b), hn::InterleaveUpper(df, a, b));
  const VF cd = join(hn::InterleaveLower(df, c, d), hn::InterleaveUpper(df, c, d));
  const auto ab64 = hn::BitCast(d64, ab);
  const auto cd64 = hn::BitCast(d64, cd);
  return join(hn::BitCast(df, hn::InterleaveLower(d64, ab64, cd64)),
              hn::BitCast(df, hn::InterleaveUpper(d64, ab64, cd64)));
}
HWY_INLINE VF SumFour(VF a, VF b, VF c, VF d) { return JoinFour<Add>(a, b, c, d); }

// Joins the 128-bit blocks of kLanes / 4 results of JoinFour: lane 4 * i + j is lane j of fours[i],
// joined over its blocks.
template <class Join>
HWY_INLINE VF JoinBlocks(const VF* fours) {
#if HWY_MAX_BYTES == 16
  return fours[0];
#elif HWY_MAX_BYTES == 32
  const DF df;
  return Join()(hn::ConcatLowerLower(df, fours[1], fours[0]),
                hn::ConcatUpperUpper(df, fours[1], fours[0]));
#else
  const DF df;
  const Join join;
  const VF ac = join(hn::ConcatLowerLower(df, fours[2], fours[0]),
                     hn::ConcatUpperUpper(df, fours[2], fours[0]));
  const VF bd = join(hn::ConcatLowerLower(df, fours[3], fours[1]),
                     hn::ConcatUpperUpper(df, fours[3], fours[1]));
  return join(hn::OddEvenBlocks(hn::SwapAdjacentBlocks(bd), ac),
              hn::OddEvenBlocks(bd, hn::SwapAdjacentBlocks(ac)));
#endif
}
HWY_INLINE VF SumBlocks(const VF* fours) { return JoinBlocks<Add>(fours); }

}  // namespace winnow::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
