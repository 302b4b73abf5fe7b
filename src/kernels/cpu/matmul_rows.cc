#include "kernels/cpu/matmul_rows.h"

#include "base/check.h"
#include "base/half.h"
#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/matmul_rows.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/weights-inl.h"

HWY_BEFORE_NAMESPACE();
namespace winnow::kernels::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using VF8 = hn::Vec<DF8>;
using V32 = hn::Vec<D32>;

HWY_INLINE void StoreResult(const MatMulJob& job, int64_t token, int64_t row, float value) {
  if (job.bias != nullptr) value += job.bias[row];
  float& out = job.out[token * job.out_stride + row];
  out = job.accumulate ? out + value : value;
}

// --- quantised ---

// One part of a group times the same part of the input.
template <class P>
HWY_INLINE V32 DotPart(V32 sum, V8 w, const int8_t* x) {
  const auto vx = hn::LoadU(DS8(), x);
  if constexpr (P::kSigned) {
    return Dot4Signed(sum, hn::BitCast(DS8(), w), vx);
  } else {
    return Dot4(sum, w, vx);
  }
}

// sum += scale * (weights . x) for one group of 32, spread over the lanes. Scales times input scale
// come in `scales`: one per group, or one per half.
template <class P>
HWY_INLINE VF8 AddGroup(VF8 sum, const Bytes32& w, const int8_t* x, const float* scales) {
  const DF8 df;
  if constexpr (kParts == 1) {
    const V32 dot = DotPart<P>(hn::Zero(D32()), w.part[0], x);
    auto scale = hn::Set(df, scales[0]);
    if constexpr (P::kScalesPerGroup == 2) {
      scale = hn::ConcatUpperLower(df, hn::Set(df, scales[1]), scale);
    }
    return hn::MulAdd(hn::ConvertTo(df, dot), scale, sum);
  } else if constexpr (P::kScalesPerGroup == 1) {
    const V32 dot = DotPart<P>(hn::Zero(D32()), w.part[0], x);
    return hn::MulAdd(hn::ConvertTo(df, DotPart<P>(dot, w.part[kParts - 1], x + 16)),
                      hn::Set(df, scales[0]), sum);
  } else {
    for (int i = 0; i < kParts; ++i) {
      const V32 dot = DotPart<P>(hn::Zero(D32()), w.part[i], x + 16 * i);
      sum = hn::MulAdd(hn::ConvertTo(df, dot), hn::Set(df, scales[i]), sum);
    }
    return sum;
  }
}

// Groups G.. of the R blocks against T input rows.
template <class P, int R, int T, int G>
HWY_INLINE void AddGroups(const typename P::Block* const (&blocks)[R], const int8_t* const (&x)[T],
                          const float (&scales)[R][T][P::kGroups * P::kScalesPerGroup],
                          VF8 (&sums)[R][T]) {
  if constexpr (G < P::kGroups) {
    for (int r = 0; r < R; ++r) {
      const Bytes32 w = P::template Load<G>(*blocks[r]);
      for (int t = 0; t < T; ++t) {
        sums[r][t] =
            AddGroup<P>(sums[r][t], w, x[t] + 32 * G, &scales[r][t][G * P::kScalesPerGroup]);
      }
    }
    AddGroups<P, R, T, G + 1>(blocks, x, scales, sums);
  }
}

// R weight rows from `row` on times T input rows from `token` on.
template <class P, int R, int T>
HWY_INLINE void Dot(const MatMulJob& job, int64_t row, int64_t token, const RoundedInput& x) {
  using Block = typename P::Block;
  constexpr int kScales = P::kGroups * P::kScalesPerGroup;
  constexpr bool kCorrected = P::kHasMin || P::kOffset != 0;
  const int64_t n_blocks = x.cols / (32 * P::kGroups);
  const Block* blocks[R];
  const int8_t* q[T];
  const float* x_scale[T];
  const float* x_sum[T];
  VF8 sums[R][T];
  float corrections[R][T] = {};
  for (int r = 0; r < R; ++r) {
    blocks[r] = reinterpret_cast<const Block*>(job.weight) + (row + r) * n_blocks;
    for (int t = 0; t < T; ++t) sums[r][t] = hn::Zero(DF8());
  }
  for (int t = 0; t < T; ++t) {
    const int64_t i = token + t;
    q[t] = x.q + i * x.cols;
    x_scale[t] = x.scale + i * x.cols / 32;
    x_sum[t] = P::kScalesPerGroup == 1 ? x.sum32 + i * x.cols / 32 : x.sum16 + i * x.cols / 16;
  }
  for (int64_t b = 0; b < n_blocks; ++b) {
    float scales[R][T][kScales];
    for (int r = 0; r < R; ++r) {
      float s[kScales], m[kScales];
      P::Scales(*blocks[r], s, m);
      if constexpr (!P::kHasMin) {
        for (int i = 0; i < kScales; ++i) m[i] = s[i] * -static_cast<float>(P::kOffset);
      }
      for (int t = 0; t < T; ++t) {
        for (int i = 0; i < kScales; ++i) {
          scales[r][t][i] = s[i] * x_scale[t][i / P::kScalesPerGroup];
        }
        if constexpr (kCorrected) {
          for (int i = 0; i < kScales; ++i) corrections[r][t] += m[i] * x_sum[t][i];
        }
      }
    }
    AddGroups<P, R, T, 0>(blocks, q, scales, sums);
    for (int r = 0; r < R; ++r) ++blocks[r];
    for (int t = 0; t < T; ++t) {
      q[t] += 32 * P::kGroups;
      x_scale[t] += P::kGroups;
      x_sum[t] += kScales;
    }
  }
  for (int r = 0; r < R; ++r) {
    for (int t = 0; t < T; ++t) {
      const float sum = hn::GetLane(hn::SumOfLanes(DF8(), sums[r][t]));
      StoreResult(job, token + t, row + r, sum + corrections[r][t]);
    }
  }
}

// Input rows in fours, then twos, then one; so many weight rows at once that there are at most four
// sums.
template <class P, int R>
HWY_INLINE void DotTokens(const MatMulJob& job, int64_t row, const RoundedInput& x) {
  int64_t token = 0;
  for (; token + 4 <= x.rows; token += 4) {
    for (int r = 0; r < R; ++r) Dot<P, 1, 4>(job, row + r, token, x);
  }
  if (token + 2 <= x.rows) {
    if constexpr (R == 4) {
      Dot<P, 2, 2>(job, row, token, x);
      Dot<P, 2, 2>(job, row + 2, token, x);
    } else {
      Dot<P, 1, 2>(job, row, token, x);
    }
    token += 2;
  }
  if (token < x.rows) Dot<P, R, 1>(job, row, token, x);
}

template <class P>
void DotRows(const MatMulJob& job, int64_t first, int64_t n, const RoundedInput& x) {
  int64_t row = first;
  for (; row + 4 <= first + n; row += 4) DotTokens<P, 4>(job, row, x);
  for (; row < first + n; ++row) DotTokens<P, 1>(job, row, x);
}

void Rounded(const MatMulJob& job, int64_t first, int64_t n, const RoundedInput& x) {
  WithPolicy(job.type, [&](auto policy) HWY_ATTR { DotRows<decltype(policy)>(job, first, n, x); });
}

// --- floats ---

using DF = hn::ScalableTag<float>;
using VF = hn::Vec<DF>;

struct LoadF32 {
  using Element = float;
  static HWY_INLINE VF Vector(const Element* p) { return hn::LoadU(DF(), p); }
  static HWY_INLINE float Scalar(Element v) { return v; }
};
struct LoadF16 {
  using Element = uint16_t;
  static HWY_INLINE VF Vector(const Element* p) {
    const hn::Rebind<uint16_t, DF> d16;
    const hn::Rebind<hwy::float16_t, DF> df16;
    return hn::PromoteTo(DF(), hn::BitCast(df16, hn::LoadU(d16, p)));
  }
  static HWY_INLINE float Scalar(Element v) { return HalfToFloat(v); }
};
struct LoadBF16 {
  using Element = uint16_t;
  static HWY_INLINE VF Vector(const Element* p) {
    const hn::Rebind<uint16_t, DF> d16;
    const hn::Rebind<uint32_t, DF> d32;
    return hn::BitCast(DF(), hn::ShiftLeft<16>(hn::PromoteTo(d32, hn::LoadU(d16, p))));
  }
  static HWY_INLINE float Scalar(Element v) { return Bfloat16ToFloat(v); }
};

// R weight rows times T input rows; the columns beyond the last whole vector one by one.
template <class L, int R, int T>
HWY_INLINE void DotFloats(const MatMulJob& job, int64_t row, int64_t token, const MatMulInput& x) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(DF()));
  const auto* w = reinterpret_cast<const typename L::Element*>(job.weight) + row * x.cols;
  const float* v = x.x + token * x.stride;
  VF sums[R][T];
  for (auto& of_row : sums) {
    for (VF& sum : of_row) sum = hn::Zero(DF());
  }
  int64_t k = 0;
  for (; k + lanes <= x.cols; k += lanes) {
    for (int r = 0; r < R; ++r) {
      const VF vw = L::Vector(w + r * x.cols + k);
      for (int t = 0; t < T; ++t) {
        sums[r][t] = hn::MulAdd(vw, hn::LoadU(DF(), v + t * x.stride + k), sums[r][t]);
      }
    }
  }
  for (int r = 0; r < R; ++r) {
    for (int t = 0; t < T; ++t) {
      float sum = hn::GetLane(hn::SumOfLanes(DF(), sums[r][t]));
      for (int64_t i = k; i < x.cols; ++i) {
        sum += L::Scalar(w[r * x.cols + i]) * v[t * x.stride + i];
      }
      StoreResult(job, token + t, row + r, sum);
    }
  }
}

template <class L>
void DotFloatRows(const MatMulJob& job, int64_t first, int64_t n, const MatMulInput& x) {
  int64_t row = first;
  for (; row + 4 <= first + n; row += 4) {
    int64_t token = 0;
    for (; token + 2 <= x.rows; token += 2) DotFloats<L, 4, 2>(job, row, token, x);
    if (token < x.rows) DotFloats<L, 4, 1>(job, row, token, x);
  }
  for (; row < first + n; ++row) {
    int64_t token = 0;
    for (; token + 2 <= x.rows; token += 2) DotFloats<L, 1, 2>(job, row, token, x);
    if (token < x.rows) DotFloats<L, 1, 1>(job, row, token, x);
  }
}

void Floats(const MatMulJob& job, int64_t first, int64_t n, const MatMulInput& x) {
  switch (job.type) {
    case TensorType::kF32:
      return DotFloatRows<LoadF32>(job, first, n, x);
    case TensorType::kF16:
      return DotFloatRows<LoadF16>(job, first, n, x);
    case TensorType::kBF16:
      return DotFloatRows<LoadBF16>(job, first, n, x);
    default:
      WINNOW_CHECK(false);
  }
}

}  // namespace winnow::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace winnow::kernels::cpu {

HWY_EXPORT(Rounded);
HWY_EXPORT(Floats);

RowProducts RowProductsFor(int64_t target) {
  return {.rounded = ForTarget(HWY_DISPATCH_TABLE(Rounded), target),
          .floats = ForTarget(HWY_DISPATCH_TABLE(Floats), target)};
}

}  // namespace winnow::kernels::cpu
#endif
