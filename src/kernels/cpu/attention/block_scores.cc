// Products of one query with rows of Q8_0 and Q4_0 keys, in 8-bit integers.
#include <cstddef>
#include <cstdint>

#include "kernels/cpu/attention/attention_kernels.h"
#include "kernels/cpu/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention/block_scores.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/attention/key_blocks-inl.h"
#include "kernels/cpu/simd/cache_rows-inl.h"

HWY_BEFORE_NAMESPACE();
namespace winnow::kernels::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// scores[h * kChunkSlots + s] = q[h] . key row s, for kLanes rows of Q8_0 or Q4_0 and all heads.
// Lanes are slots, so the products need no sum over lanes, and a block's scale is applied once.
template <bool kQ4>
void ScoreBlocksTile(const std::byte* rows, int64_t row_bytes, const QuantizedQuery& q,
                     int n_blocks, int group, float* scores) {
  const DF df;
  const DI32 di;
  for (int block = 0; block < n_blocks; ++block) {
    const std::byte* blocks = rows + block * (kQ4 ? Q4Block::kBytes : Q8Block::kBytes);
    const VF key_scales = LoadScales(blocks, row_bytes);
    VI32 keys[8];
    if constexpr (kQ4) {
      VI32 pairs[4];
      LoadTransposed(blocks + 2, row_bytes, pairs);
      const VI32 low = hn::Set(di, 0x0F0F0F0F);
#pragma GCC unroll 4
      for (int i = 0; i < 4; ++i) {
        keys[i] = hn::And(pairs[i], low);
        keys[i + 4] = hn::And(hn::ShiftRight<4>(pairs[i]), low);
      }
    } else {
      LoadTransposed(blocks + 2, row_bytes, keys);
      LoadTransposed(blocks + 18, row_bytes, keys + 4);
#pragma GCC unroll 8
      for (int i = 0; i < 8; ++i) keys[i] = PrepareQ8(keys[i]);
    }
    constexpr int kOffset = kQ4 ? 8 : kQ8Offset;
    for (int h = 0; h < group; ++h) {
      const int head_block = h * n_blocks + block;
      const int8_t* values = q.values + head_block * 32;
      VI32 even = hn::Set(di, -kOffset * q.sums[head_block]);
      VI32 odd = hn::Zero(di);
#pragma GCC unroll 8
      for (int i = 0; i < 8; i += 2) {
        const int8_t* fours = values + 4 * i;
        even = kQ4 ? DotNibbles(even, keys[i], fours) : DotQ8(even, keys[i], fours);
        odd = kQ4 ? DotNibbles(odd, keys[i + 1], fours + 4) : DotQ8(odd, keys[i + 1], fours + 4);
      }
      const VF dot = hn::ConvertTo(df, hn::Add(even, odd));
      const VF scale = hn::Mul(key_scales, hn::Set(df, q.scales[head_block]));
      float* to = scores + h * kChunkSlots;
      const VF before = block == 0 ? hn::Zero(df) : hn::LoadU(df, to);
      hn::StoreU(hn::MulAdd(dot, scale, before), df, to);
    }
  }
}

const BlockScoreKernels& BlockScoreTable() {
  static constexpr BlockScoreKernels kTable = {
      .q8_0 = ScoreBlocksTile<false>, .q4_0 = ScoreBlocksTile<true>, .n_lanes = kLanes};
  return kTable;
}

}  // namespace winnow::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace winnow::kernels::cpu {

HWY_EXPORT(BlockScoreTable);

const BlockScoreKernels& BlockScoreKernelsFor(int64_t target) {
  return ForTarget(HWY_DISPATCH_TABLE(BlockScoreTable), target)();
}

}  // namespace winnow::kernels::cpu
#endif
