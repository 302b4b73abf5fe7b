#define WINNOW_BF16_KERNELS  // see simd/targets.h
#include <algorithm>
#include <cstring>

#include "kernels/cpu/matmul/tile_kernels.h"
#include "kernels/cpu/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/matmul/bf16_tile_kernels.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/simd/interleave-inl.h"
#include "kernels/cpu/simd/store_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace winnow::kernels::cpu::HWY_NAMESPACE {
namespace {  // names recur in other files

#if HWY_TARGET == HWY_AVX3_DL

namespace hn = hwy::HWY_NAMESPACE;
using TF = hn::FixedTag<float, kLanes>;
using Pair = uint32_t;  // BF16 values of two columns, the first one in the low half

// As for F32: two vectors of rows times as many tokens as fit into the registers.
constexpr int kTileRows = 2 * kLanes;
constexpr int kTokens = 12;

// Pairs unpacked at a time: a tile of them stays in L2, a block of tokens in L1.
constexpr int64_t kChunk = 512;
constexpr int64_t kStrip = 32;  // pairs interleaved at a time

// Pairs of a packed input, padded with zeros.
constexpr int64_t PaddedPairs(int64_t cols) { return (cols + 7) / 8 * 4; }

// Copies columns [2 * first, 2 * (first + n)) of the n_rows <= kTileRows rows at `row` to tile
// [n][kTileRows]. Lanes of other rows and pairs beyond the columns are zero.
void Unpack(const MatMulJob& job, int64_t cols, int64_t row, int64_t n_rows, int64_t first,
            int64_t n, Pair* tile) {
  HWY_ALIGN Pair strip[kLanes * kStrip];
  for (int half = 0; half < 2; ++half) {
    const int64_t live = std::clamp<int64_t>(n_rows - half * kLanes, 0, kLanes);
    const auto* rows =
        reinterpret_cast<const uint16_t*>(job.weight) + (row + half * kLanes) * cols + 2 * first;
    Pair* to = tile + half * kLanes;
    const int64_t n_whole = std::min(n, cols / 2 - first) / 4 * 4;
    int64_t k = 0;
    if (live == kLanes && cols % 2 == 0) {
      for (; k < n_whole; k += 4) {
        hn::Vec<Units> units[4];
        LoadUnits(reinterpret_cast<const uint8_t*>(rows + 2 * k), 2 * cols, units);
        for (int i = 0; i < 4; ++i) hn::Store(units[i], Units(), to + (k + i) * kTileRows);
      }
    }
    for (; k < n; k += kStrip) {
      const int64_t count = std::min(kStrip, n - k);
      const int64_t n_cols = std::clamp<int64_t>(cols - 2 * (first + k), 0, 2 * count);
      std::memset(strip, 0, sizeof(strip));
      for (int64_t r = 0; r < live; ++r) {
        std::memcpy(strip + r * kStrip, rows + r * cols + 2 * k,
                    static_cast<size_t>(n_cols) * sizeof(uint16_t));
      }
      Interleave(strip, kStrip, count, to + k * kTileRows, kTileRows);
    }
  }
}

#define WINNOW_BF16 __attribute__((target(HWY_TARGET_STR ",avx512bf16")))

// Tokens [token, token + T) times the tile; x: [n][T]. The first chunk of columns adds the bias
// and, if job.accumulate, the old results.
template <int T>
WINNOW_BF16 HWY_NOINLINE void MultiplyTile(const MatMulJob& job, const Pair* tile, int64_t n,
                                           const Pair* x, int64_t token, int64_t row,
                                           bool first_chunk) {
  __m512 low[T], high[T];
  HWY_UNROLL(16)
  for (int t = 0; t < T; ++t) low[t] = high[t] = _mm512_setzero_ps();
  for (int64_t k = 0; k < n; ++k) {
    const auto w_low = __builtin_bit_cast(__m512bh, _mm512_load_si512(tile + k * kTileRows));
    const auto w_high =
        __builtin_bit_cast(__m512bh, _mm512_load_si512(tile + k * kTileRows + kLanes));
    HWY_UNROLL(16)
    for (int t = 0; t < T; ++t) {
      const auto vx =
          __builtin_bit_cast(__m512bh, _mm512_set1_epi32(static_cast<int>(x[k * T + t])));
      low[t] = _mm512_dpbf16_ps(low[t], w_low, vx);
      high[t] = _mm512_dpbf16_ps(high[t], w_high, vx);
    }
  }
  const bool accumulate = job.accumulate || !first_chunk;
  const float* bias = first_chunk ? job.bias : nullptr;
  for (int t = 0; t < T; ++t) {
    StoreTileRow(job, token + t, row, accumulate, bias, hn::Vec<TF>{low[t]});
    if (row + kLanes < job.rows)
      StoreTileRow(job, token + t, row + kLanes, accumulate, bias, hn::Vec<TF>{high[t]});
  }
}

void MultiplyBf16(const MatMulJob& job, const TileRange& range, const PackedFloats& x,
                  std::byte* scratch) {
  auto* tile = reinterpret_cast<Pair*>(scratch);
  const auto* pairs = reinterpret_cast<const Pair*>(x.x);
  const int64_t n_pairs = PaddedPairs(x.cols);
  const int64_t end_row = range.first_row + range.n_rows,
                end_token = range.first_token + range.n_tokens;
  for (int64_t row = range.first_row; row < end_row; row += kTileRows) {
    for (int64_t first = 0; first < n_pairs; first += kChunk) {
      const int64_t n = std::min(kChunk, n_pairs - first);
      Unpack(job, x.cols, row, std::min<int64_t>(kTileRows, end_row - row), first, n, tile);
      for (int64_t token = range.first_token; token < end_token;) {
        const int64_t tokens = BlockTokens(token, x.rows, kTokens);
        const Pair* packed = pairs + token * n_pairs + first * tokens;
        WithBlockTokens<kTokens>(tokens, [&](auto t) HWY_ATTR {
          MultiplyTile<t()>(job, tile, n, packed, token, row, first == 0);
        });
        token += tokens;
      }
    }
  }
}

// Rounds 32 floats to nearest, ties to even.
WINNOW_BF16 HWY_INLINE void Round32(const float* from, Pair* to) {
  const auto rounded = _mm512_cvtne2ps_pbh(_mm512_loadu_ps(from + 16), _mm512_loadu_ps(from));
  _mm512_store_si512(to, __builtin_bit_cast(__m512i, rounded));
}

WINNOW_BF16 void PackBf16(const MatMulInput& x, int64_t token, const PackedFloats& to) {
  constexpr int64_t kStep = 16;  // pairs rounded at a time
  const int64_t n = BlockTokens(token, x.rows, kTokens), n_pairs = PaddedPairs(x.cols);
  Pair* block = reinterpret_cast<Pair*>(to.x) + token * n_pairs;
  HWY_ALIGN Pair rounded[kTokens * kStep];
  for (int64_t pair = 0; pair < n_pairs; pair += kStep) {
    const int64_t n_cols = std::min(2 * kStep, x.cols - 2 * pair);
    for (int64_t t = 0; t < n; ++t) {
      const float* from = x.x + (token + t) * x.stride + 2 * pair;
      if (n_cols == 2 * kStep) {
        Round32(from, rounded + t * kStep);
      } else {
        float last[2 * kStep] = {};
        std::copy_n(from, n_cols, last);
        Round32(last, rounded + t * kStep);
      }
    }
    const int64_t end = std::min(kStep, n_pairs - pair);
    for (int64_t p = 0; p < end; ++p) {
      for (int64_t t = 0; t < n; ++t) block[(pair + p) * n + t] = rounded[t * kStep + p];
    }
  }
}

FloatTiles Bf16TilesOfTarget() {
  return {.rows_per_tile = kTileRows,
          .tokens_per_block = kTokens,
          .scratch_bytes = kChunk * kTileRows * static_cast<int64_t>(sizeof(Pair)),
          .pack = PackBf16,
          .multiply = MultiplyBf16};
}

#else

FloatTiles Bf16TilesOfTarget() { return {}; }

#endif

}  // namespace
}  // namespace winnow::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace winnow::kernels::cpu {

HWY_EXPORT(Bf16TilesOfTarget);

FloatTiles Bf16TilesFor(int64_t target) {
  return ForTarget(HWY_DISPATCH_TABLE(Bf16TilesOfTarget), target)();
}

}  // namespace winnow::kernels::cpu
#endif
