#include "kernels/cpu/matmul_input.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/matmul_input.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace winnow::kernels::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Rounds one block of 32: writes q, returns the scale and the sums of q over both halves.
struct Rounded {
  float scale;
  int32_t sums[2];
};
HWY_INLINE Rounded RoundBlock(const float* x, int8_t* q) {
  constexpr int kStep = HWY_MAX_BYTES / 4;  // at most 16
  const hn::FixedTag<float, kStep> df;
  const hn::FixedTag<int32_t, kStep> d32;
  const hn::FixedTag<int16_t, kStep> d16;
  const hn::FixedTag<int8_t, kStep> d8;
  auto largest = hn::Zero(df);
  for (int i = 0; i < 32; i += kStep) largest = hn::Max(largest, hn::Abs(hn::LoadU(df, x + i)));
  const float amax = hn::GetLane(hn::MaxOfLanes(df, largest));
  const float scale = amax / 127.0f;
  const auto inverse = hn::Set(df, amax > 0 ? 127.0f / amax : 0.0f);
  Rounded out = {.scale = scale, .sums = {0, 0}};
  for (int half = 0; half < 2; ++half) {
    auto sum = hn::Zero(d32);
    for (int i = 16 * half; i < 16 * half + 16; i += kStep) {
      // The lower bound matters for input that is not finite: -128 has no negative.
      const auto value =
          hn::Max(hn::NearestInt(hn::Mul(hn::LoadU(df, x + i), inverse)), hn::Set(d32, -127));
      sum = hn::Add(sum, value);
      hn::StoreU(hn::DemoteTo(d8, hn::DemoteTo(d16, value)), d8, q + i);
    }
    out.sums[half] = hn::GetLane(hn::SumOfLanes(d32, sum));
  }
  return out;
}

void RoundRow(const float* x, int64_t cols, const RoundedRow& out) {
  for (int64_t b = 0; b < cols / 32; ++b) {
    const Rounded r = RoundBlock(x + 32 * b, out.q + 32 * b);
    out.scale[b] = r.scale;
    out.sum32[b] = r.scale * static_cast<float>(r.sums[0] + r.sums[1]);
    for (int half = 0; half < 2; ++half) {
      out.sum16[2 * b + half] = r.scale * static_cast<float>(r.sums[half]);
      out.sums[2 * b + half] = r.sums[half];
    }
  }
}

}  // namespace winnow::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace winnow::kernels::cpu {

HWY_EXPORT(RoundRow);

int64_t RoundedBytes(int64_t rows, int64_t cols) {
  // Per block: 32 bytes of q, a scale, sum32, and two each of sum16 and sums.
  return rows * cols / 32 * (32 + 6 * static_cast<int64_t>(sizeof(float)));
}

RoundedInput RoundInput(const float* x, int64_t rows, int64_t cols, int64_t stride, int64_t target,
                        std::byte* memory, ThreadPool& pool) {
  WINNOW_CHECK(cols % 32 == 0);
  const int64_t blocks = cols / 32;  // per row
  auto* q = reinterpret_cast<int8_t*>(memory);
  auto* scale = reinterpret_cast<float*>(memory + rows * cols);
  float* sum32 = scale + rows * blocks;
  float* sum16 = sum32 + rows * blocks;
  auto* sums = reinterpret_cast<int32_t*>(sum16 + rows * 2 * blocks);
  const auto round_row = ForTarget(HWY_DISPATCH_TABLE(RoundRow), target);
  constexpr int64_t kFloatsPerRun = 8192;
  pool.ParallelFor(
      rows,
      [&](int64_t row, int) {
        round_row(x + row * stride, cols,
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
