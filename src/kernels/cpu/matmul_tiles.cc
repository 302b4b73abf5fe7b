#include "kernels/cpu/matmul_tiles.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"
#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/matmul_tiles.cc"
#include <hwy/cache_control.h>
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/interleave-inl.h"
#include "kernels/cpu/store_tile-inl.h"
#include "kernels/cpu/weights-inl.h"

HWY_BEFORE_NAMESPACE();
namespace winnow::kernels::cpu::HWY_NAMESPACE {
namespace {  // names recur in other files

namespace hn = hwy::HWY_NAMESPACE;
using TU8 = hn::FixedTag<uint8_t, 4 * kLanes>;
using TS8 = hn::FixedTag<int8_t, 4 * kLanes>;
using T32 = hn::FixedTag<int32_t, kLanes>;
using TF = hn::FixedTag<float, kLanes>;

// One accumulator in float and one in int32 per token must fit in the registers.
constexpr int kTokens = HWY_MAX_BYTES == 64 ? 12 : 4;

// How a policy's bytes lie in a tile and are multiplied.
//   VNNI: unsigned, 128 above the value (types without min: the sums start at -128 times the
//   input's sums, which is free) or plain (types with min). Others: signed bytes of signed types;
//   the small unsigned bytes of the others, whose offset becomes a min, and whose products are
//   summed in 16 bits (on x86) as long as they must fit.
struct TileForm {
  int scales_per_group;
  bool has_min;
  bool starts_at_init;
  bool is_signed;
  int pairs_in_16_bits;  // so many pairs of products may be summed: count * 2 * 127 * largest byte
                         // < 2^15
};

template <class P>
inline constexpr TileForm kForm = {.scales_per_group = P::kScalesPerGroup,
                                   .has_min = P::kHasMin || (!kHasVnni && P::kOffset != 0),
                                   .starts_at_init = kHasVnni && !P::kHasMin,
                                   .is_signed = !kHasVnni && P::kSigned,
                                   // With two scales per group, four pairs end at the scale.
                                   .pairs_in_16_bits = kHasVnni || P::kBits > 6 ? 1
                                                       : P::kBits == 6          ? 2
                                                       : P::kBits == 5 || P::kScalesPerGroup == 2
                                                           ? 4
                                                           : 8};

// Unpacked rows: for every group of 32 columns
//   q      [8][kLanes][4]               four columns of every row side by side
//   scale  [scales per group][kLanes]
//   min    [scales per group][kLanes]   if there are any
struct Tile {
  uint8_t* q;
  float* scale;
  float* min;
};

constexpr int64_t TileBytes(int64_t cols) {
  // At most two scales and mins per group.
  return kLanes * (cols + cols / 32 * 4 * static_cast<int64_t>(sizeof(float)));
}

Tile TileAt(std::byte* memory, int64_t cols) {
  auto* q = reinterpret_cast<uint8_t*>(memory);
  auto* scale = reinterpret_cast<float*>(q + kLanes * cols);
  return {.q = q, .scale = scale, .min = scale + kLanes * 2 * (cols / 32)};
}

constexpr int64_t kChunk = 256;  // columns interleaved at a time

template <class P, int G>
HWY_INLINE void UnpackGroups(const typename P::Block& block, uint8_t* to) {
  if constexpr (G < P::kGroups) {
    Bytes32 w = P::template Load<G>(block);
    if constexpr (kForm<P>.starts_at_init) {
      for (V8& part : w.part)
        part = hn::Add(part, hn::Set(D8(), static_cast<uint8_t>(128 - P::kOffset)));
    }
    StoreBytes(w, to + 32 * G);
    UnpackGroups<P, G + 1>(block, to);
  }
}

// Types whose blocks, of one group each, go into a tile without being unpacked row by row: the
// bytes of the group in order, or 16 whose low nibbles are the first half of the group.
template <class P>
inline constexpr bool kIsDirect = false;
template <>
inline constexpr bool kIsDirect<PolicyQ8_0> = true;
template <>
inline constexpr bool kIsDirect<PolicyQ4_0> = true;
template <>
inline constexpr bool kIsDirect<PolicyQ4_1> = true;

// The scales of kLanes rows, `stride` blocks apart.
template <class Block, class Field>
HWY_INLINE hn::Vec<TF> LoadScales(const Block* column, int64_t stride, Field field) {
  using T16 = hn::FixedTag<uint16_t, kLanes>;
  HWY_ALIGN uint16_t bits[kLanes];
  HWY_UNROLL(16)
  for (int r = 0; r < kLanes; ++r) bits[r] = column[r * stride].*field;
  return hn::PromoteTo(TF(),
                       hn::BitCast(hn::FixedTag<hwy::float16_t, kLanes>(), hn::Load(T16(), bits)));
}

// Block b of kLanes rows, `stride` blocks apart.
template <class P>
HWY_INLINE void UnpackColumn(const typename P::Block* column, int64_t stride, const Tile& tile,
                             int64_t b) {
  uint8_t* q = tile.q + b * 32 * kLanes;
  const auto put = [&](int unit, hn::Vec<TU8> v) HWY_ATTR {
    if constexpr (kForm<P>.starts_at_init) {
      v = hn::Add(v, hn::Set(TU8(), static_cast<uint8_t>(128 - P::kOffset)));
    }
    hn::Store(v, TU8(), q + unit * 4 * kLanes);
  };
  const auto* bytes = reinterpret_cast<const uint8_t*>(column->q);
  const auto stride_bytes = static_cast<int64_t>(sizeof(typename P::Block)) * stride;
  hn::Vec<Units> units[4];
  if constexpr (P::kBits == 8) {
    for (int first = 0; first < 8; first += 4) {
      LoadUnits(bytes + 4 * first, stride_bytes, units);
      for (int i = 0; i < 4; ++i) put(first + i, hn::BitCast(TU8(), units[i]));
    }
  } else {
    LoadUnits(bytes, stride_bytes, units);
    const auto nibble = hn::Set(TU8(), 15);
    for (int i = 0; i < 4; ++i) {
      put(i, hn::And(hn::BitCast(TU8(), units[i]), nibble));
      put(4 + i, hn::And(hn::BitCast(TU8(), hn::ShiftRight<4>(units[i])), nibble));
    }
  }
  const auto scale = LoadScales(column, stride, &P::Block::d);
  hn::Store(scale, TF(), tile.scale + b * kLanes);
  if constexpr (P::kHasMin) {
    hn::Store(LoadScales(column, stride, &P::Block::m), TF(), tile.min + b * kLanes);
  } else if constexpr (kForm<P>.has_min) {
    hn::Store(hn::Mul(scale, hn::Set(TF(), -static_cast<float>(P::kOffset))), TF(),
              tile.min + b * kLanes);
  }
}

// kLanes whole rows; `next_blocks`: as in Unpack.
template <class P>
void UnpackDirect(const typename P::Block* blocks, int64_t n_blocks, int64_t next_blocks,
                  const Tile& tile) {
  // Blocks in a line of the cache, which is fetched once.
  constexpr int64_t kPerLine = std::max<int64_t>(1, 64 / sizeof(typename P::Block));
  for (int64_t b = 0; b < n_blocks; ++b) {
    if (b % kPerLine == 0) {
      HWY_UNROLL(16)
      for (int r = 0; r < kLanes; ++r) {
        hwy::Prefetch(reinterpret_cast<const uint8_t*>(blocks + r * n_blocks + b + next_blocks));
      }
    }
    UnpackColumn<P>(blocks + b, n_blocks, tile, b);
  }
}

// Rows [row, row + n) of the job, n <= kLanes; the lanes beyond n are zero. The same places of the
// tile that follows are fetched ahead if there is one: with few tokens a product is mostly this.
template <class P>
void Unpack(const MatMulJob& job, int64_t cols, int64_t row, int64_t n, bool one_follows,
            const Tile& tile) {
  using Block = typename P::Block;
  constexpr int kBlock = 32 * P::kGroups;
  constexpr int kScales = P::kGroups * P::kScalesPerGroup;
  HWY_ALIGN uint8_t rows[kLanes * kChunk];
  const int64_t n_blocks = cols / kBlock;
  const auto* blocks = reinterpret_cast<const Block*>(job.weight) + row * n_blocks;
  const int64_t next_blocks = one_follows ? kLanes * n_blocks : 0;
  if constexpr (kIsDirect<P>) {
    if (n == kLanes) return UnpackDirect<P>(blocks, n_blocks, next_blocks, tile);
  }
  if (n < kLanes) {
    std::memset(rows, 0, sizeof(rows));
    const int64_t n_scales = kLanes * P::kScalesPerGroup * (cols / 32);
    std::fill_n(tile.scale, n_scales, 0.0f);
    if constexpr (kForm<P>.has_min) std::fill_n(tile.min, n_scales, 0.0f);
  }
  for (int64_t first = 0; first < cols; first += kChunk) {
    const int64_t n_cols = std::min(kChunk, cols - first);
    for (int64_t r = 0; r < n; ++r) {
      for (int64_t k = 0; k < n_cols; k += kBlock) {
        const int64_t b = (first + k) / kBlock;
        const Block& block = blocks[r * n_blocks + b];
        hwy::Prefetch(reinterpret_cast<const uint8_t*>(&block + next_blocks));
        UnpackGroups<P, 0>(block, rows + r * kChunk + k);
        float s[kScales], m[kScales];
        P::Scales(block, s, m);
        for (int i = 0; i < kScales; ++i) tile.scale[(b * kScales + i) * kLanes + r] = s[i];
        if constexpr (kForm<P>.has_min) {
          if constexpr (!P::kHasMin) {
            for (int i = 0; i < kScales; ++i) m[i] = s[i] * -static_cast<float>(P::kOffset);
          }
          for (int i = 0; i < kScales; ++i) tile.min[(b * kScales + i) * kLanes + r] = m[i];
        }
      }
    }
    Interleave(reinterpret_cast<const uint32_t*>(rows), kChunk / 4, n_cols / 4,
               reinterpret_cast<uint32_t*>(tile.q + first * kLanes), kLanes);
  }
}

// --- the product of a tile and a block of tokens ---

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
HWY_INLINE void MultiplyBlock(const Tile& tile, const PackedRounded& packed, int64_t token,
                              hn::Vec<TF> (&sums)[T]) {
  constexpr int kScales = kF.scales_per_group;  // of a group, with a scale each
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
HWY_NOINLINE void MultiplyTile(const MatMulJob& job, const Tile& tile, const PackedRounded& x,
                               int64_t token, int64_t row) {
  hn::Vec<TF> sums[T];
  MultiplyBlock<kF>(tile, x, token, sums);
  for (int t = 0; t < T; ++t) StoreTileRow(job, token + t, row, job.accumulate, job.bias, sums[t]);
}

template <class P>
void MultiplyRange(const MatMulJob& job, const TileRange& range, const PackedRounded& x,
                   std::byte* scratch) {
  const int64_t end_row = range.first_row + range.n_rows;
  const int64_t tile_bytes = TileBytes(x.cols);
  int64_t n_tiles = 0;
  for (int64_t row = range.first_row; row < end_row; row += kLanes, ++n_tiles) {
    Unpack<P>(job, x.cols, row, std::min<int64_t>(kLanes, end_row - row), row + kLanes < end_row,
              TileAt(scratch + n_tiles * tile_bytes, x.cols));
  }
  const int64_t end_token = range.first_token + range.n_tokens;
  for (int64_t token = range.first_token; token < end_token;) {
    const int64_t n = BlockTokens(token, x.rows, kTokens);
    for (int64_t i = 0; i < n_tiles; ++i) {
      const Tile tile = TileAt(scratch + i * tile_bytes, x.cols);
      const int64_t row = range.first_row + i * kLanes;
      if (n == kTokens) {
        MultiplyTile<kForm<P>, kTokens>(job, tile, x, token, row);
      } else if (n == 4) {
        MultiplyTile<kForm<P>, 4>(job, tile, x, token, row);
      } else {
        MultiplyTile<kForm<P>, 1>(job, tile, x, token, row);
      }
    }
    token += n;
  }
}

void MultiplyRounded(const MatMulJob& job, const TileRange& range, const PackedRounded& x,
                     std::byte* scratch) {
  WithPolicy(job.type, [&](auto policy)
                           HWY_ATTR { MultiplyRange<decltype(policy)>(job, range, x, scratch); });
}

int64_t RoundedScratchBytes(int64_t n_rows, int64_t cols) {
  return (n_rows + kLanes - 1) / kLanes * TileBytes(cols);
}

void PackRounded(const RoundedInput& x, int64_t token, const PackedRounded& to) {
  const int64_t n = BlockTokens(token, x.rows, kTokens);
  const int64_t cols = x.cols, groups = cols / 32;
  for (int64_t t = 0; t < n; ++t) {
    const int8_t* q = x.q + (token + t) * cols;
    int8_t* to_q = to.q + token * cols + 4 * t;
    for (int64_t k = 0; k < cols; k += 4) std::memcpy(to_q + k * n, q + k, 4);
    const int64_t from32 = (token + t) * groups, to32 = token * groups + t;
    for (int64_t g = 0; g < groups; ++g) {
      to.scale[to32 + g * n] = x.scale[from32 + g];
      to.sum32[to32 + g * n] = x.sum32[from32 + g];
      to.init32[to32 + g * n] = -128 * (x.sums[2 * (from32 + g)] + x.sums[2 * (from32 + g) + 1]);
    }
    const int64_t from16 = 2 * from32, to16 = 2 * token * groups + t;
    for (int64_t i = 0; i < 2 * groups; ++i) {
      to.sum16[to16 + i * n] = x.sum16[from16 + i];
      to.init16[to16 + i * n] = -128 * x.sums[from16 + i];
    }
  }
}

RoundedTiles RoundedTilesOfTarget() {
  return {.rows_per_tile = kLanes,
          .tokens_per_block = kTokens,
          .scratch_bytes = RoundedScratchBytes,
          .pack = PackRounded,
          .multiply = MultiplyRounded};
}

}  // namespace
}  // namespace winnow::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace winnow::kernels::cpu {

HWY_EXPORT(RoundedTilesOfTarget);

int64_t PackedRoundedBytes(int64_t rows, int64_t cols) {
  // Per group: 32 bytes of q, a scale, sum32, init32, and two each of sum16 and init16.
  return rows * (cols / 32) * (32 + 7 * static_cast<int64_t>(sizeof(float)));
}

PackedRounded PackedRoundedAt(std::byte* memory, int64_t rows, int64_t cols) {
  const int64_t groups = rows * (cols / 32);
  PackedRounded packed = {.rows = rows, .cols = cols};
  packed.q = reinterpret_cast<int8_t*>(memory);
  packed.scale = reinterpret_cast<float*>(memory + 32 * groups);
  packed.sum32 = packed.scale + groups;
  packed.sum16 = packed.sum32 + groups;
  packed.init32 = reinterpret_cast<int32_t*>(packed.sum16 + 2 * groups);
  packed.init16 = packed.init32 + groups;
  return packed;
}

RoundedTiles RoundedTilesFor(int64_t target) {
  return ForTarget(HWY_DISPATCH_TABLE(RoundedTilesOfTarget), target)();
}

}  // namespace winnow::kernels::cpu
#endif
