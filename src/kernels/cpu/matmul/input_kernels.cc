#define WINNOW_FLOAT_KERNELS  // see simd/targets.h
#include "kernels/cpu/matmul/input_kernels.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "kernels/cpu/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/matmul/input_kernels.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace winnow::kernels::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

constexpr int kLanes = HWY_MAX_BYTES / 4;
using TF = hn::FixedTag<float, kLanes>;
using T32 = hn::FixedTag<int32_t, kLanes>;
using TF4 = hn::FixedTag<float, 4>;
using TI4 = hn::FixedTag<int32_t, 4>;

// Joins the 128-bit blocks of v to one. Requires: `join` is commutative and associative (up to
// rounding).
template <class D, class V, class Join>
HWY_INLINE auto JoinBlocks(D d, V v, const Join& join) {
  if constexpr (hn::MaxLanes(d) == 4) {
    return v;
  } else {
    const hn::Half<D> half;
    return JoinBlocks(half, join(hn::LowerHalf(half, v), hn::UpperHalf(half, v)), join);
  }
}
// Lane i of the result: all lanes of v_i joined.
template <class D, class V, class Join>
HWY_INLINE auto JoinFour(D d, V v0, V v1, V v2, V v3, const Join& join) {
  const hn::RepartitionToWide<D> d64;
  const V v01 = join(hn::InterleaveLower(d, v0, v1), hn::InterleaveUpper(d, v0, v1));
  const V v23 = join(hn::InterleaveLower(d, v2, v3), hn::InterleaveUpper(d, v2, v3));
  const auto low = hn::InterleaveLower(d64, hn::BitCast(d64, v01), hn::BitCast(d64, v23));
  const auto high = hn::InterleaveUpper(d64, hn::BitCast(d64, v01), hn::BitCast(d64, v23));
  return JoinBlocks(d, join(hn::BitCast(d, low), hn::BitCast(d, high)), join);
}

HWY_INLINE hn::Vec<TF> MaxMagnitude(const float* x) {
  auto largest = hn::Abs(hn::LoadU(TF(), x));
  for (int i = kLanes; i < 32; i += kLanes) {
    largest = hn::Max(largest, hn::Abs(hn::LoadU(TF(), x + i)));
  }
  return largest;
}

// Rounds half a block to q; returns partial sums of q, one per lane.
HWY_INLINE hn::Vec<T32> QuantizeHalfBlock(const float* x, float inverse, int8_t* q) {
  const hn::FixedTag<int16_t, kLanes> d16;
  const hn::FixedTag<int8_t, kLanes> d8;
  auto sum = hn::Zero(T32());
  for (int i = 0; i < 16; i += kLanes) {
    // The clamp matters for input that is not finite, or so small that `inverse` overflows: it
    // keeps sums of q small, and excludes -128, which has no negative in int8.
    const auto scaled = hn::Mul(hn::LoadU(TF(), x + i), hn::Set(TF(), inverse));
    const auto value = hn::Clamp(hn::NearestInt(scaled), hn::Set(T32(), -127), hn::Set(T32(), 127));
    sum = hn::Add(sum, value);
    hn::StoreU(hn::DemoteTo(d8, hn::DemoteTo(d16, value)), d8, q + i);
  }
  return sum;
}

// Quantises four blocks of 32 at once, so that they share the joins over lanes.
HWY_INLINE void QuantizeFourBlocks(const float* x, const QuantizedRow& out) {
  const auto max = [](auto a, auto b) HWY_ATTR { return hn::Max(a, b); };
  const auto add = [](auto a, auto b) HWY_ATTR { return hn::Add(a, b); };
  const auto largest = JoinFour(TF(), MaxMagnitude(x), MaxMagnitude(x + 32), MaxMagnitude(x + 64),
                                MaxMagnitude(x + 96), max);
  const auto scale = hn::Div(largest, hn::Set(TF4(), 127.0f));
  const auto inverses = hn::IfThenElseZero(hn::Gt(largest, hn::Zero(TF4())),
                                           hn::Div(hn::Set(TF4(), 127.0f), largest));
  HWY_ALIGN float inverse[4];
  hn::Store(inverses, TF4(), inverse);
  hn::Vec<T32> halves[8];
  HWY_UNROLL(8)
  for (int i = 0; i < 8; ++i)
    halves[i] = QuantizeHalfBlock(x + 16 * i, inverse[i / 2], out.q + 16 * i);
  const auto sums01 = JoinFour(T32(), halves[0], halves[1], halves[2], halves[3], add);
  const auto sums23 = JoinFour(T32(), halves[4], halves[5], halves[6], halves[7], add);
  const auto sums =
      hn::Add(hn::ConcatEven(TI4(), sums23, sums01), hn::ConcatOdd(TI4(), sums23, sums01));
  const auto times = [](auto factor, auto number)
                         HWY_ATTR { return hn::Mul(factor, hn::ConvertTo(TF4(), number)); };
  hn::StoreU(scale, TF4(), out.scale);
  hn::StoreU(times(scale, sums), TF4(), out.sum32);
  hn::StoreU(times(hn::InterleaveLower(TF4(), scale, scale), sums01), TF4(), out.sum16);
  hn::StoreU(times(hn::InterleaveUpper(TF4(), scale, scale), sums23), TF4(), out.sum16 + 4);
  hn::StoreU(sums01, TI4(), out.sums);
  hn::StoreU(sums23, TI4(), out.sums + 4);
}

void QuantizeRow(const float* x, int64_t cols, const QuantizedRow& out) {
  const int64_t n_blocks = cols / 32;
  if (n_blocks >= 4) {
    for (int64_t b = 0; b < n_blocks; b += 4) {
      b = std::min(b, n_blocks - 4);  // the last four, some of them again
      QuantizeFourBlocks(x + 32 * b, {.q = out.q + 32 * b,
                                      .scale = out.scale + b,
                                      .sum32 = out.sum32 + b,
                                      .sum16 = out.sum16 + 2 * b,
                                      .sums = out.sums + 2 * b});
    }
    return;
  }
  float four_x[128] = {};
  int8_t q[128];
  float scale[4], sum32[4], sum16[8];
  int32_t sums[8];
  std::copy_n(x, cols, four_x);
  QuantizeFourBlocks(four_x,
                     {.q = q, .scale = scale, .sum32 = sum32, .sum16 = sum16, .sums = sums});
  std::copy_n(q, cols, out.q);
  std::copy_n(scale, n_blocks, out.scale);
  std::copy_n(sum32, n_blocks, out.sum32);
  std::copy_n(sum16, 2 * n_blocks, out.sum16);
  std::copy_n(sums, 2 * n_blocks, out.sums);
}

}  // namespace winnow::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace winnow::kernels::cpu {

HWY_EXPORT(QuantizeRow);

int64_t QuantizedInputBytes(int64_t rows, int64_t cols) {
  // Per block: 32 bytes of q, a scale, sum32, and two each of sum16 and sums.
  return rows * cols / 32 * (32 + 6 * static_cast<int64_t>(sizeof(float)));
}

QuantizedInput QuantizeInput(const float* x, int64_t rows, int64_t cols, int64_t stride,
                             int64_t target, std::byte* memory, ThreadPool& pool) {
  WINNOW_CHECK(cols % 32 == 0);
  const int64_t blocks = cols / 32;  // per row
  auto* q = reinterpret_cast<int8_t*>(memory);
  auto* scale = reinterpret_cast<float*>(memory + rows * cols);
  float* sum32 = scale + rows * blocks;
  float* sum16 = sum32 + rows * blocks;
  auto* sums = reinterpret_cast<int32_t*>(sum16 + rows * 2 * blocks);
  const auto quantize_row = ForTarget(HWY_DISPATCH_TABLE(QuantizeRow), target);
  constexpr int64_t kFloatsPerRun = 8192;
  pool.ParallelFor(
      rows,
      [&](int64_t row, int) {
        quantize_row(x + row * stride, cols,
                     {.q = q + row * cols,
                      .scale = scale + row * blocks,
                      .sum32 = sum32 + row * blocks,
                      .sum16 = sum16 + row * 2 * blocks,
                      .sums = sums + row * 2 * blocks});
      },
      std::max<int64_t>(1, kFloatsPerRun / cols));
  return {.rows = rows,
          .cols = cols,
          .q = q,
          .scale = scale,
          .sum32 = sum32,
          .sums = sums,
          .sum16 = sum16};
}

}  // namespace winnow::kernels::cpu
#endif
