// Unpacks rows for comparison. Included by the .cc files of similarity, once per target.
#if defined(WINNOW_KERNELS_CPU_SIMILARITY_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef WINNOW_KERNELS_CPU_SIMILARITY_INL_H_
#undef WINNOW_KERNELS_CPU_SIMILARITY_INL_H_
#else
#define WINNOW_KERNELS_CPU_SIMILARITY_INL_H_
#endif

#include <cmath>

#include "kernels/cpu/attention/entries-inl.h"
#include "kernels/cpu/similarity/similarity_kernels.h"

HWY_BEFORE_NAMESPACE();
namespace winnow::kernels::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Unpacks rows as unit vectors [row, dim]; a zero row stays zero.
inline void UnpackUnit(const HostHeadRows& head, std::span<const int32_t> rows, float* out) {
  const DF df;
  const auto n = static_cast<int>(rows.size());
  CheckRows(head, rows);
  UnpackEntries({head.type, head.row_bytes, head.dim}, head.data, rows.data(), 0, n, out);
  for (int row = 0; row < n; ++row) {
    float* x = out + row * head.dim;
    VF squares = hn::Zero(df);
    int i = 0;
    for (; i + kLanes <= head.dim; i += kLanes) {
      const VF v = hn::LoadU(df, x + i);
      squares = hn::MulAdd(v, v, squares);
    }
    float sum = hn::GetLane(hn::SumOfLanes(df, squares));
    for (; i < head.dim; ++i) sum += x[i] * x[i];
    const float inverse = sum > 0 ? 1 / std::sqrt(sum) : 0;
    const VF scale = hn::Set(df, inverse);
    for (i = 0; i + kLanes <= head.dim; i += kLanes) {
      hn::StoreU(hn::Mul(hn::LoadU(df, x + i), scale), df, x + i);
    }
    for (; i < head.dim; ++i) x[i] *= inverse;
  }
}

}  // namespace winnow::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
