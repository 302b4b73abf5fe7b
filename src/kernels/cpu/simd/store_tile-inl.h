// Stores the results of a tile of weight rows. Per-target include guard.
#if defined(WINNOW_KERNELS_CPU_STORE_TILE_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef WINNOW_KERNELS_CPU_STORE_TILE_INL_H_
#undef WINNOW_KERNELS_CPU_STORE_TILE_INL_H_
#else
#define WINNOW_KERNELS_CPU_STORE_TILE_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>

#include "kernels/cpu/matmul/matmul.h"
#include "kernels/cpu/simd/interleave-inl.h"

HWY_BEFORE_NAMESPACE();
namespace winnow::kernels::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// out[token, row .. row + kLanes) (+)= sums + bias, up to the job's last row. bias may be null.
template <class VF>
HWY_INLINE void StoreTileRow(const MatMulJob& job, int64_t token, int64_t row, bool accumulate,
                             const float* bias, VF sums) {
  const hn::FixedTag<float, kLanes> df;
  float* out = job.out + token * job.out_stride + row;
  const int64_t n = std::min<int64_t>(kLanes, job.rows - row);
  if (n == kLanes) {
    if (bias != nullptr) sums = hn::Add(sums, hn::LoadU(df, bias + row));
    if (accumulate) sums = hn::Add(sums, hn::LoadU(df, out));
    hn::StoreU(sums, df, out);
    return;
  }
  HWY_ALIGN float lanes[kLanes];
  hn::Store(sums, df, lanes);
  for (int64_t r = 0; r < n; ++r) {
    float value = lanes[r];
    if (bias != nullptr) value += bias[row + r];
    out[r] = accumulate ? out[r] + value : value;
  }
}

}  // namespace winnow::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
