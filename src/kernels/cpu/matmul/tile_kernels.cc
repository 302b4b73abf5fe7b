#include "kernels/cpu/matmul/tile_kernels.h"

#include <algorithm>
#include <cstring>
#include <span>

#include "base/check.h"
#include "kernels/cpu/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/matmul/tile_kernels.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/matmul/weight_tiles-inl.h"
#include "kernels/cpu/simd/store_tile-inl.h"

HWY_BEFORE_NAMESPACE();
namespace winnow::kernels::cpu::HWY_NAMESPACE {
namespace {  // names recur in other files

namespace hn = hwy::HWY_NAMESPACE;

// Tokens per block: a float and an int32 accumulator per token must fit in the registers.
constexpr int kTokens = HWY_MAX_BYTES == 64 ? 12 : 4;

// Prefetches memory into L2, a few cache lines per step.
class PacedPrefetch {
 public:
  PacedPrefetch(std::span<const std::byte> memory, int64_t n_steps)
      : at_(memory.data()), end_(memory.data() + memory.size()) {
    const auto bytes = static_cast<int64_t>(memory.size());
    lines_per_step_ = (bytes / kLine + n_steps) / n_steps;
  }
  HWY_INLINE void Step() {
    for (int64_t i = 0; i < lines_per_step_ && at_ < end_; ++i, at_ += kLine) {
      __builtin_prefetch(at_, 0, 2);
    }
  }

 private:
  static constexpr int64_t kLine = 64;
  const std::byte *at_, *end_;
  int64_t lines_per_step_;
};

// sums[t] += four columns of the tile's rows times those of token t. x: [T][4].
template <bool kSigned, int T>
HWY_INLINE void AddFour(const uint8_t* w, const int8_t* x, hn::Vec<T32> (&sums)[T]) {
  const auto vw = hn::Load(TU8(), w);
#if HWY_TARGET == HWY_AVX3_DL
  HWY_UNROLL(16)
  for (int t = 0; t < T; ++t) sums[t] = Dot4Broadcast(sums[t], vw, x + 4 * t);
#else
  HWY_UNROLL(16)
  for (int t = 0; t < T; ++t) {
    int32_t four;
    std::memcpy(&four, x + 4 * t, sizeof(four));
    const auto vx = hn::BitCast(TS8(), hn::Set(T32(), four));
    if constexpr (kSigned) {
      sums[t] = Dot4Signed(sums[t], hn::BitCast(TS8(), vw), vx);
    } else {
      sums[t] = Dot4(sums[t], vw, vx);
    }
  }
#endif
}

// The same for 4 * kSteps columns; x: [kSteps][T][4].
template <TileForm kF, int kSteps, int T>
HWY_INLINE void AddColumns(const uint8_t* w, const int8_t* x, hn::Vec<T32> (&sums)[T]) {
#if HWY_TARGET == HWY_AVX3 || HWY_TARGET == HWY_AVX2 || HWY_TARGET == HWY_SSE4
  constexpr int kRun = std::min(kSteps, kF.pairs_in_16_bits);
  if constexpr (kRun > 1) {
    using T16 = hn::FixedTag<int16_t, 2 * kLanes>;
    for (int first = 0; first < kSteps; first += kRun) {
      hn::Vec<T16> pairs[T];
      HWY_UNROLL(16)
      for (int t = 0; t < T; ++t) pairs[t] = hn::Zero(T16());
      for (int i = first; i < first + kRun; ++i) {
        const auto vw = hn::Load(TU8(), w + i * 4 * kLanes);
        HWY_UNROLL(16)
        for (int t = 0; t < T; ++t) {
          int32_t four;
          std::memcpy(&four, x + (i * T + t) * 4, sizeof(four));
          pairs[t] = DotPairs(pairs[t], vw, hn::BitCast(TS8(), hn::Set(T32(), four)));
        }
      }
      HWY_UNROLL(16)
      for (int t = 0; t < T; ++t) sums[t] = SumPairs(sums[t], pairs[t]);
    }
    return;
  }
#endif
  for (int i = 0; i < kSteps; ++i) {
    AddFour<kF.is_signed>(w + i * 4 * kLanes, x + i * 4 * T, sums);
  }
}

template <TileForm kF, int T>
HWY_INLINE void MultiplyBlock(const Tile& tile, const PackedQuantized& packed, int64_t token,
                              PacedPrefetch& next, hn::Vec<TF> (&sums)[T]) {
  constexpr int kScales = kF.scales_per_group;  // parts of a group, each with a scale
  constexpr int kSteps = 8 / kScales;
  const int64_t n_groups = packed.cols / 32;
  const uint8_t* w = tile.q;
  const float* w_scale = tile.scale;
  const float* w_min = tile.min;
  const int8_t* x = packed.q + token * packed.cols;
  const float* x_scale = packed.scale + token * n_groups;
  const float* x_sum = (kScales == 1 ? packed.sum32 : packed.sum16) + token * n_groups * kScales;
  const int32_t* x_init =
      (kScales == 1 ? packed.init32 : packed.init16) + token * n_groups * kScales;
  HWY_UNROLL(16)
  for (int t = 0; t < T; ++t) sums[t] = hn::Zero(TF());
  for (int64_t g = 0; g < n_groups; ++g) {
    next.Step();
    for (int part = 0; part < kScales; ++part) {
      hn::Vec<T32> dots[T];
      HWY_UNROLL(16)
      for (int t = 0; t < T; ++t) {
        dots[t] = kF.starts_at_init ? hn::Set(T32(), x_init[t]) : hn::Zero(T32());
      }
      AddColumns<kF, kSteps>(w, x, dots);
      const auto scale = hn::Load(TF(), w_scale);
      HWY_UNROLL(16)
      for (int t = 0; t < T; ++t) {
        sums[t] = hn::MulAdd(hn::ConvertTo(TF(), dots[t]),
                             hn::Mul(scale, hn::Set(TF(), x_scale[t])), sums[t]);
      }
      if constexpr (kF.has_min) {
        const auto min = hn::Load(TF(), w_min);
        HWY_UNROLL(16)
        for (int t = 0; t < T; ++t) sums[t] = hn::MulAdd(min, hn::Set(TF(), x_sum[t]), sums[t]);
        w_min += kLanes;
      }
      w += kSteps * 4 * kLanes;
      w_scale += kLanes;
      x += kSteps * 4 * T;
      x_init += T;
      x_sum += T;
    }
    x_scale += T;
  }
}

template <TileForm kF, int T>
HWY_NOINLINE void MultiplyTile(const MatMulJob& job, const Tile& tile, const PackedQuantized& x,
                               int64_t token, int64_t row, PacedPrefetch& next) {
  hn::Vec<TF> sums[T];
  MultiplyBlock<kF>(tile, x, token, next, sums);
  for (int t = 0; t < T; ++t) StoreTileRow(job, token + t, row, job.accumulate, job.bias, sums[t]);
}

template <class P>
void MultiplyRange(const MatMulJob& job, const TileRange& range, const PackedQuantized& x,
                   std::byte* scratch) {
  const int64_t end_row = range.first_row + range.n_rows;
  const int64_t tile_bytes = TileBytes(x.cols);
  int64_t n_tiles = 0;
  for (int64_t row = range.first_row; row < end_row; row += kLanes, ++n_tiles) {
    Unpack<P>(job, x.cols, row, std::min<int64_t>(kLanes, end_row - row), row + kLanes < end_row,
              TileAt(scratch + n_tiles * tile_bytes, x.cols));
  }
  const int64_t end_token = range.first_token + range.n_tokens;
  const int64_t n_blocks = (range.n_tokens + kTokens - 1) / kTokens;  // a lower bound
  PacedPrefetch next(range.next, n_tiles * n_blocks * (x.cols / 32));
  for (int64_t token = range.first_token; token < end_token;) {
    const int64_t n = BlockTokens(token, x.rows, kTokens);
    for (int64_t i = 0; i < n_tiles; ++i) {
      const Tile tile = TileAt(scratch + i * tile_bytes, x.cols);
      const int64_t row = range.first_row + i * kLanes;
      WithBlockTokens<kTokens>(
          n, [&](auto t) HWY_ATTR { MultiplyTile<kForm<P>, t()>(job, tile, x, token, row, next); });
    }
    token += n;
  }
}

void MultiplyQuantized(const MatMulJob& job, const TileRange& range, const PackedQuantized& x,
                       std::byte* scratch) {
  WithPolicy(job.type, [&](auto policy)
                           HWY_ATTR { MultiplyRange<decltype(policy)>(job, range, x, scratch); });
}

int64_t QuantizedScratchBytes(int64_t n_rows, int64_t cols) {
  return (n_rows + kLanes - 1) / kLanes * TileBytes(cols);
}

// to[u * n_rows + r] = from[r * n + u] for n 32-bit units of each of n_rows rows.
template <class T>
void Transpose(const T* from, int64_t n, int64_t n_rows, T* to) {
  const hn::FixedTag<T, 4> d;
  const hn::RepartitionToWide<decltype(d)> d64;
  int64_t row = 0;
  for (; row + 4 <= n_rows; row += 4) {
    const T* four = from + row * n;
    int64_t u = 0;
    for (; u + 4 <= n; u += 4) {
      const auto r0 = hn::LoadU(d, four + u), r1 = hn::LoadU(d, four + n + u);
      const auto r2 = hn::LoadU(d, four + 2 * n + u), r3 = hn::LoadU(d, four + 3 * n + u);
      const auto low01 = hn::BitCast(d64, hn::InterleaveLower(d, r0, r1));
      const auto low23 = hn::BitCast(d64, hn::InterleaveLower(d, r2, r3));
      const auto high01 = hn::BitCast(d64, hn::InterleaveUpper(d, r0, r1));
      const auto high23 = hn::BitCast(d64, hn::InterleaveUpper(d, r2, r3));
      T* out = to + u * n_rows + row;
      hn::StoreU(hn::BitCast(d, hn::InterleaveLower(d64, low01, low23)), d, out);
      hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(d64, low01, low23)), d, out + n_rows);
      hn::StoreU(hn::BitCast(d, hn::InterleaveLower(d64, high01, high23)), d, out + 2 * n_rows);
      hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(d64, high01, high23)), d, out + 3 * n_rows);
    }
    for (; u < n; ++u) {
      for (int64_t r = 0; r < 4; ++r) to[u * n_rows + row + r] = four[r * n + u];
    }
  }
  for (; row < n_rows; ++row) {
    for (int64_t u = 0; u < n; ++u) to[u * n_rows + row] = from[row * n + u];
  }
}

void PackQuantized(const QuantizedInput& x, int64_t token, const PackedQuantized& to) {
  const int64_t n = BlockTokens(token, x.rows, kTokens);
  const int64_t cols = x.cols, groups = cols / 32;
  const int64_t at = token * groups;
  Transpose(reinterpret_cast<const int32_t*>(x.q + token * cols), cols / 4, n,
            reinterpret_cast<int32_t*>(to.q + token * cols));
  Transpose(x.scale + at, groups, n, to.scale + at);
  Transpose(x.sum32 + at, groups, n, to.sum32 + at);
  Transpose(x.sum16 + 2 * at, 2 * groups, n, to.sum16 + 2 * at);
  int32_t* init16 = to.init16 + 2 * at;
  Transpose(x.sums + 2 * at, 2 * groups, n, init16);
  for (int64_t i = 0; i < 2 * groups * n; ++i) init16[i] *= -128;
  for (int64_t g = 0; g < groups; ++g) {
    for (int64_t t = 0; t < n; ++t) {
      to.init32[at + g * n + t] = init16[2 * g * n + t] + init16[(2 * g + 1) * n + t];
    }
  }
}

QuantizedTiles QuantizedTilesOfTarget() {
  return {.rows_per_tile = kLanes,
          .tokens_per_block = kTokens,
          .scratch_bytes = QuantizedScratchBytes,
          .pack = PackQuantized,
          .multiply = MultiplyQuantized};
}

}  // namespace
}  // namespace winnow::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace winnow::kernels::cpu {

HWY_EXPORT(QuantizedTilesOfTarget);

int64_t PackedQuantizedBytes(int64_t rows, int64_t cols) {
  // Per group: 32 bytes of q, a scale, sum32, init32, and two each of sum16 and init16.
  return rows * (cols / 32) * (32 + 7 * static_cast<int64_t>(sizeof(float)));
}

PackedQuantized PackedQuantizedAt(std::byte* memory, int64_t rows, int64_t cols) {
  const int64_t groups = rows * (cols / 32);
  PackedQuantized packed = {.rows = rows, .cols = cols};
  packed.q = reinterpret_cast<int8_t*>(memory);
  packed.scale = reinterpret_cast<float*>(memory + 32 * groups);
  packed.sum32 = packed.scale + groups;
  packed.sum16 = packed.sum32 + groups;
  packed.init32 = reinterpret_cast<int32_t*>(packed.sum16 + 2 * groups);
  packed.init16 = packed.init32 + groups;
  return packed;
}

QuantizedTiles QuantizedTilesFor(int64_t target) {
  return ForTarget(HWY_DISPATCH_TABLE(QuantizedTilesOfTarget), target)();
}

}  // namespace winnow::kernels::cpu
#endif
