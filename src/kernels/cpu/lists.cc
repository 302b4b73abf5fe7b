#define WINNOW_FLOAT_KERNELS  // see simd/targets.h
#include "kernels/cpu/lists.h"

#include <algorithm>
#include <cstddef>

#include "kernels/cpu/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/lists.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/matmul/floats-inl.h"

HWY_BEFORE_NAMESPACE();
namespace winnow::kernels::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using DD = hn::ScalableTag<double>;
using VD = hn::Vec<DD>;

// Loops step by vectors of doubles; floats and halves are in partial vectors with as many lanes.
using DHalfF = hn::Rebind<float, DD>;
using VHalfF = hn::Vec<DHalfF>;

HWY_INLINE VHalfF LoadHalves(const Half* from) {
  const hn::Rebind<hwy::float16_t, DD> d16;
  return hn::PromoteTo(DHalfF(), hn::LoadU(d16, reinterpret_cast<const hwy::float16_t*>(from)));
}

HWY_INLINE void StoreHalves(VHalfF values, Half* to) {
  const hn::Rebind<hwy::float16_t, DD> d16;
  hn::StoreU(hn::DemoteTo(d16, values), d16, reinterpret_cast<hwy::float16_t*>(to));
}

// max(x, 0); 0 for NaN.
HWY_INLINE VHalfF Positive(VHalfF x) {
  return hn::IfThenElseZero(hn::Gt(x, hn::Zero(DHalfF())), x);
}

AttentionTotals AddAttention(const AttentionSums& sums, std::span<const float> weights) {
  const DD dd;
  const size_t n = sums.total.size(), lanes = hn::Lanes(dd);
  VD total = hn::Zero(dd), window = hn::Zero(dd);
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const VHalfF weight = hn::LoadU(DHalfF(), &weights[i]);
    const VD sum = hn::Add(hn::LoadU(dd, &sums.total[i]), hn::PromoteTo(dd, weight));
    hn::StoreU(sum, dd, &sums.total[i]);
    total = hn::Add(total, sum);
    StoreHalves(hn::Add(LoadHalves(&sums.current[i]), weight), &sums.current[i]);
    const VHalfF both = hn::Add(LoadHalves(&sums.past[i]), LoadHalves(&sums.current[i]));
    window = hn::Add(window, hn::PromoteTo(dd, both));
  }
  AttentionTotals totals = {.total = hn::GetLane(hn::SumOfLanes(dd, total)),
                            .window = hn::GetLane(hn::SumOfLanes(dd, window))};
  for (; i < n; ++i) {
    sums.total[i] += weights[i];
    totals.total += sums.total[i];
    sums.current[i] = sums.current[i] + weights[i];
    totals.window += sums.past[i] + sums.current[i];
  }
  return totals;
}

void ScoreAttention(const AttentionSums& sums, double total_factor, double window_factor,
                    std::span<float> scores) {
  const DD dd;
  const size_t n = sums.total.size(), lanes = hn::Lanes(dd);
  const VD of_total = hn::Set(dd, total_factor);
  const VHalfF of_window = hn::Set(DHalfF(), static_cast<float>(window_factor));
  size_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    const VHalfF total = hn::DemoteTo(DHalfF(), hn::Mul(hn::LoadU(dd, &sums.total[i]), of_total));
    const VHalfF window = hn::Add(LoadHalves(&sums.past[i]), LoadHalves(&sums.current[i]));
    const VHalfF score = hn::Max(Positive(total), Positive(hn::Mul(window, of_window)));
    hn::StoreU(score, DHalfF(), &scores[i]);
  }
  for (; i < n; ++i) {
    const auto total = static_cast<float>(sums.total[i] * total_factor);
    const float window = sums.past[i] + sums.current[i];
    const float of_queries = window * static_cast<float>(window_factor);
    scores[i] = std::max(total > 0 ? total : 0, of_queries > 0 ? of_queries : 0);
  }
}

void ToFloats(std::span<const Half> halves, float* out) {
  const DF df;
  const size_t lanes = hn::Lanes(df);
  size_t i = 0;
  for (; i + lanes <= halves.size(); i += lanes) {
    hn::StoreU(LoadF16::Vector(reinterpret_cast<const uint16_t*>(&halves[i])), df, out + i);
  }
  for (; i < halves.size(); ++i) out[i] = halves[i];
}

const ListKernels& ListTable() {
  static constexpr ListKernels kTable = {
      .add_attention = AddAttention, .score_attention = ScoreAttention, .to_floats = ToFloats};
  return kTable;
}

}  // namespace winnow::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace winnow::kernels::cpu {

HWY_EXPORT(ListTable);

const ListKernels& ListKernelsFor(int64_t target) {
  return ForTarget(HWY_DISPATCH_TABLE(ListTable), target)();
}

}  // namespace winnow::kernels::cpu
#endif
