// Products of one query with rows of keys. Per-target include guard:
#if defined(WINNOW_KERNELS_CPU_SCORES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef WINNOW_KERNELS_CPU_SCORES_INL_H_
#undef WINNOW_KERNELS_CPU_SCORES_INL_H_
#else
#define WINNOW_KERNELS_CPU_SCORES_INL_H_
#endif

#include <hwy/highway.h>

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/attention/attention_kernels.h"
#include "kernels/cpu/attention/key_blocks-inl.h"
#include "kernels/cpu/attention/passes-inl.h"
#include "kernels/cpu/simd/lane_sums-inl.h"
#include "kernels/cpu/simd/opaque-inl.h"

HWY_BEFORE_NAMESPACE();
namespace winnow::kernels::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// scores[h * kChunkSlots + s] = q[h] . key row s, for kLanes rows.
template <class Elements, int kHeads>
void ScoreTile(const std::byte* rows, int64_t row_bytes, const float* q, int dim, float* scores) {
  const DF df;
  VF fours[kHeads][kLanes / 4];
#pragma GCC unroll 1  // four times the code is no faster
  for (int four = 0; four < kLanes / 4; ++four) {
    const std::byte* row = rows + 4 * four * row_bytes;
    VF acc[kHeads][4];
#pragma GCC unroll 8
    for (int h = 0; h < kHeads; ++h) {
#pragma GCC unroll 4
      for (int s = 0; s < 4; ++s) acc[h][s] = hn::Zero(df);
    }
    int i = 0;
    for (; i + kLanes <= dim; i += kLanes) {
      VF of_query[kHeads];
#pragma GCC unroll 8
      for (int h = 0; h < kHeads; ++h) {
        of_query[h] = hn::LoadU(df, q + h * dim + i);
        if constexpr (kLanes == 8) of_query[h] = Opaque(of_query[h]);
      }
#pragma GCC unroll 4
      for (int s = 0; s < 4; ++s) {
        const VF key = Elements::Load(row + s * row_bytes + i * Elements::kBytes);
#pragma GCC unroll 8
        for (int h = 0; h < kHeads; ++h) acc[h][s] = hn::MulAdd(key, of_query[h], acc[h][s]);
      }
    }
    if (i < dim) {
#pragma GCC unroll 4
      for (int s = 0; s < 4; ++s) {
        const VF key = LoadFirst<Elements>(row + s * row_bytes + i * Elements::kBytes, dim - i);
#pragma GCC unroll 8
        for (int h = 0; h < kHeads; ++h) {
          const auto* rest = reinterpret_cast<const std::byte*>(q + h * dim + i);
          acc[h][s] = hn::MulAdd(key, LoadFirst<F32Elements>(rest, dim - i), acc[h][s]);
        }
      }
    }
#pragma GCC unroll 8
    for (int h = 0; h < kHeads; ++h) {
      fours[h][four] = SumFour(acc[h][0], acc[h][1], acc[h][2], acc[h][3]);
    }
  }
#pragma GCC unroll 8
  for (int h = 0; h < kHeads; ++h) {
    hn::StoreU(SumBlocks(fours[h]), df, scores + h * kChunkSlots);
  }
}

void QuantizeQuery(const float* q, int n_blocks_total, int8_t* values, float* scales,
                   int32_t* sums) {
  const DF df;
  const DI32 di;
  for (int block = 0; block < n_blocks_total; ++block) {
    const float* x = q + block * 32;
    VF largest = hn::Zero(df);
    for (int i = 0; i < 32; i += kLanes) {
      largest = hn::Max(largest, hn::Abs(hn::LoadU(df, x + i)));
    }
    const float max = hn::GetLane(hn::MaxOfLanes(df, largest));
    scales[block] = max / 127;
    // Zero if 127 / max would be infinite.
    const VF inverse = hn::Set(df, max > 1e-36f ? 127 / max : 0);
    VI32 sum = hn::Zero(di);
    for (int i = 0; i < 32; i += kLanes) {
      // Clamp: the query may hold NaN or infinities.
      const VI32 quantized = hn::Clamp(hn::NearestInt(hn::Mul(hn::LoadU(df, x + i), inverse)),
                                       hn::Set(di, -127), hn::Set(di, 127));
      sum = hn::Add(sum, quantized);
      const hn::Rebind<int8_t, DI32> d8;
      hn::StoreU(hn::DemoteTo(d8, quantized), d8, values + block * 32 + i);
    }
    sums[block] = hn::GetLane(hn::SumOfLanes(di, sum));
  }
}

template <class Elements>
void ScoreElements(const std::byte* rows, int64_t row_bytes, const AttentionShape& shape,
                   const float* q, float* scores) {
  const int dim = shape.key_dim;
  ForPasses(shape.group, [&](int h, auto count) HWY_ATTR {
    ScoreTile<Elements, decltype(count)::kHeads>(rows, row_bytes, q + h * dim, dim,
                                                 scores + h * kChunkSlots);
  });
}

}  // namespace winnow::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
