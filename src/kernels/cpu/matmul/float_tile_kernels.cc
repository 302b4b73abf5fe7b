#define WINNOW_FLOAT_KERNELS  // see simd/targets.h
#include <algorithm>
#include <cstring>

#include "kernels/cpu/matmul/tile_kernels.h"
#include "kernels/cpu/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/matmul/float_tile_kernels.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/matmul/floats-inl.h"
#include "kernels/cpu/simd/interleave-inl.h"
#include "kernels/cpu/simd/store_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace winnow::kernels::cpu::HWY_NAMESPACE {
namespace {  // names recur in other files

namespace hn = hwy::HWY_NAMESPACE;
using TF = hn::FixedTag<float, kLanes>;

// Two vectors of rows times as many tokens as fit: the sums fill the registers.
constexpr int kTileRows = 2 * kLanes;
constexpr int kTokens = HWY_MAX_BYTES == 64 ? 12 : HWY_MAX_BYTES == 32 ? 6 : 4;

// Columns unpacked at a time: a tile of them stays in L2, a block of tokens in L1.
constexpr int64_t kChunk = 512;
constexpr int64_t kStrip = 64;  // columns interleaved at a time

// Columns of a packed input, padded with zeros.
constexpr int64_t Padded(int64_t cols) { return (cols + 3) / 4 * 4; }

// Unpacks columns [first, first + n) of the n_rows <= kTileRows rows at `row` to tile
// [Padded(n)][kTileRows]; zeroes the other lanes.
template <class L>
void Unpack(const MatMulJob& job, int64_t cols, int64_t row, int64_t n_rows, int64_t first,
            int64_t n, float* tile) {
  using Element = typename L::Element;
  HWY_ALIGN float strip[kLanes * kStrip];
  const auto lanes = static_cast<int64_t>(hn::Lanes(DF()));
  for (int half = 0; half < 2; ++half) {
    const int64_t live = std::clamp<int64_t>(n_rows - half * kLanes, 0, kLanes);
    if (live < kLanes) std::memset(strip, 0, sizeof(strip));
    for (int64_t k = 0; k < n; k += kStrip) {
      const int64_t count = std::min(kStrip, n - k);
      for (int64_t r = 0; r < live; ++r) {
        const auto* from = reinterpret_cast<const Element*>(job.weight) +
                           (row + half * kLanes + r) * cols + first + k;
        float* to = strip + r * kStrip;
        int64_t i = 0;
        for (; i + lanes <= count; i += lanes) hn::Store(L::Vector(from + i), DF(), to + i);
        for (; i < count; ++i) to[i] = L::Scalar(from[i]);
        for (; i < Padded(count); ++i) to[i] = 0;
      }
      Interleave(reinterpret_cast<const uint32_t*>(strip), kStrip, Padded(count),
                 reinterpret_cast<uint32_t*>(tile + k * kTileRows + half * kLanes), kTileRows);
    }
  }
}

// Tokens [token, token + T) times the tile; x: [n][T]. The first chunk of columns adds the bias
// and, if job.accumulate, the old results.
template <int T>
HWY_NOINLINE void MultiplyTile(const MatMulJob& job, const float* tile, int64_t n, const float* x,
                               int64_t token, int64_t row, bool first_chunk) {
  const TF df;
  hn::Vec<TF> low[T], high[T];
  HWY_UNROLL(16)
  for (int t = 0; t < T; ++t) low[t] = high[t] = hn::Zero(df);
  for (int64_t k = 0; k < n; ++k) {
    const auto w_low = hn::Load(df, tile + k * kTileRows);
    const auto w_high = hn::Load(df, tile + k * kTileRows + kLanes);
    HWY_UNROLL(16)
    for (int t = 0; t < T; ++t) {
      const auto vx = hn::Set(df, x[k * T + t]);
      low[t] = hn::MulAdd(w_low, vx, low[t]);
      high[t] = hn::MulAdd(w_high, vx, high[t]);
    }
  }
  const bool accumulate = job.accumulate || !first_chunk;
  const float* bias = first_chunk ? job.bias : nullptr;
  for (int t = 0; t < T; ++t) {
    StoreTileRow(job, token + t, row, accumulate, bias, low[t]);
    if (row + kLanes < job.rows)
      StoreTileRow(job, token + t, row + kLanes, accumulate, bias, high[t]);
  }
}

template <class L>
void MultiplyRange(const MatMulJob& job, const TileRange& range, const PackedFloats& x,
                   float* tile) {
  const int64_t end_row = range.first_row + range.n_rows,
                end_token = range.first_token + range.n_tokens;
  for (int64_t row = range.first_row; row < end_row; row += kTileRows) {
    for (int64_t first = 0; first < x.cols; first += kChunk) {
      const int64_t n = std::min(kChunk, x.cols - first);
      Unpack<L>(job, x.cols, row, std::min<int64_t>(kTileRows, end_row - row), first, n, tile);
      for (int64_t token = range.first_token; token < end_token;) {
        const int64_t tokens = BlockTokens(token, x.rows, kTokens);
        const float* packed = x.x + token * Padded(x.cols) + first * tokens;
        WithBlockTokens<kTokens>(tokens, [&](auto t) HWY_ATTR {
          MultiplyTile<t()>(job, tile, Padded(n), packed, token, row, first == 0);
        });
        token += tokens;
      }
    }
  }
}

void MultiplyFloats(const MatMulJob& job, const TileRange& range, const PackedFloats& x,
                    std::byte* scratch) {
  WithLoader(job.type, [&](auto loader) HWY_ATTR {
    MultiplyRange<decltype(loader)>(job, range, x, reinterpret_cast<float*>(scratch));
  });
}

void PackFloats(const MatMulInput& x, int64_t token, const PackedFloats& to) {
  const int64_t n = BlockTokens(token, x.rows, kTokens);
  float* block = to.x + token * Padded(x.cols);
  for (int64_t k = 0; k < x.cols; ++k) {
    for (int64_t t = 0; t < n; ++t) block[k * n + t] = x.x[(token + t) * x.stride + k];
  }
  std::fill(block + x.cols * n, block + Padded(x.cols) * n, 0.0f);
}

FloatTiles FloatTilesOfTarget() {
  return {.rows_per_tile = kTileRows,
          .tokens_per_block = kTokens,
          .scratch_bytes = kChunk * kTileRows * static_cast<int64_t>(sizeof(float)),
          .pack = PackFloats,
          .multiply = MultiplyFloats};
}

}  // namespace
}  // namespace winnow::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace winnow::kernels::cpu {

HWY_EXPORT(FloatTilesOfTarget);

FloatTiles FloatTilesFor(int64_t target) {
  return ForTarget(HWY_DISPATCH_TABLE(FloatTilesOfTarget), target)();
}

int64_t PackedFloatsBytes(int64_t rows, int64_t cols) {
  return rows * ((cols + 3) / 4 * 4) * static_cast<int64_t>(sizeof(float));
}

}  // namespace winnow::kernels::cpu
#endif
