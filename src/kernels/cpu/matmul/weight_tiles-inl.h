// Unpacks weight rows to tiles with one row per lane. Per-target include guard.
#if defined(WINNOW_KERNELS_CPU_WEIGHT_TILES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef WINNOW_KERNELS_CPU_WEIGHT_TILES_INL_H_
#undef WINNOW_KERNELS_CPU_WEIGHT_TILES_INL_H_
#else
#define WINNOW_KERNELS_CPU_WEIGHT_TILES_INL_H_
#endif

#include <hwy/cache_control.h>
#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "kernels/cpu/matmul/matmul.h"
#include "kernels/cpu/matmul/weights-inl.h"
#include "kernels/cpu/simd/interleave-inl.h"

HWY_BEFORE_NAMESPACE();
namespace winnow::kernels::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using TU8 = hn::FixedTag<uint8_t, 4 * kLanes>;
using TS8 = hn::FixedTag<int8_t, 4 * kLanes>;
using T32 = hn::FixedTag<int32_t, kLanes>;
using TF = hn::FixedTag<float, kLanes>;

// How a policy's bytes are stored in a tile and multiplied.
//   VNNI: unsigned bytes. Types without min store value + 128, and the sums start at -128 times the
//   input's sums, which costs nothing; types with min store the bytes unchanged.
//   Other targets: signed types keep signed bytes. The other types keep their small unsigned bytes;
//   their offset becomes a min, and on x86 their products are summed in 16 bits while they fit.
struct TileForm {
  int scales_per_group;
  bool has_min;
  bool starts_at_init;
  bool is_signed;
  // Pairs of products that fit a sum in 16 bits: count * 2 * 127 * largest byte < 2^15.
  int pairs_in_16_bits;
};

template <class P>
inline constexpr TileForm kForm = {.scales_per_group = P::kScalesPerGroup,
                                   .has_min = P::kHasMin || (!kHasVnni && P::kOffset != 0),
                                   .starts_at_init = kHasVnni && !P::kHasMin,
                                   .is_signed = !kHasVnni && P::kSigned,
                                   // With two scales per group, a scale covers four pairs.
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

// Types with one group per block that are transposed directly into a tile, without unpacking row by
// row. Their bytes are the group's elements in order, or 16 bytes whose low nibbles are the first
// half of the group.
template <class P>
inline constexpr bool kIsDirect = false;
template <>
inline constexpr bool kIsDirect<PolicyQ8_0> = true;
template <>
inline constexpr bool kIsDirect<PolicyQ4_0> = true;
template <>
inline constexpr bool kIsDirect<PolicyQ4_1> = true;

// The scales (or mins) of kLanes rows, `stride` blocks apart.
template <class Block, class Field>
HWY_INLINE hn::Vec<TF> LoadScales(const Block* column, int64_t stride, Field field) {
  using T16 = hn::FixedTag<uint16_t, kLanes>;
  HWY_ALIGN uint16_t bits[kLanes];
  HWY_UNROLL(16)
  for (int r = 0; r < kLanes; ++r) bits[r] = column[r * stride].*field;
  return hn::PromoteTo(TF(),
                       hn::BitCast(hn::FixedTag<hwy::float16_t, kLanes>(), hn::Load(T16(), bits)));
}

// Unpacks block b of kLanes rows, `stride` blocks apart.
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

// Unpacks kLanes whole rows. next_blocks: blocks from a row to the row to prefetch, as in Unpack.
template <class P>
void UnpackDirect(const typename P::Block* blocks, int64_t n_blocks, int64_t next_blocks,
                  const Tile& tile) {
  // Blocks per cache line, which is prefetched once.
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

// Unpacks rows [row, row + n) of the job, n <= kLanes; zeroes the lanes beyond n. If one_follows,
// prefetches the rows of the next tile: with few tokens, a product spends most of its time here.
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

}  // namespace winnow::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
