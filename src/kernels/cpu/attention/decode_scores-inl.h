// Scores of one query for a chunk of entries, and the softmax. Per-target include guard:
#if defined(WINNOW_KERNELS_CPU_DECODE_SCORES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef WINNOW_KERNELS_CPU_DECODE_SCORES_INL_H_
#undef WINNOW_KERNELS_CPU_DECODE_SCORES_INL_H_
#else
#define WINNOW_KERNELS_CPU_DECODE_SCORES_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <type_traits>

#include "kernels/cpu/attention/attention_kernels.h"
#include "kernels/cpu/attention/entries-inl.h"
#include "kernels/cpu/attention/scores-inl.h"
#include "kernels/cpu/simd/cache_rows-inl.h"
#include "kernels/cpu/simd/exp-inl.h"

HWY_BEFORE_NAMESPACE();
namespace winnow::kernels::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// --- weights ---

// Replaces the scores of one head by weights 2^(score - max). Zeroes the lanes past n_slots.
void SoftmaxChunk(float* scores, int n_slots, float* max_out, float* sum_out) {
  const DF df;
  const int n_tiles = (n_slots + kLanes - 1) / kLanes;
  const VF lanes = hn::Iota(df, 0);
  const int last = (n_tiles - 1) * kLanes;
  const auto valid = hn::Lt(lanes, hn::Set(df, static_cast<float>(n_slots - last)));
  const VF first_score = hn::Set(df, scores[0]);
  VF max = hn::IfThenElse(valid, hn::LoadU(df, scores + last), first_score);
  for (int i = 0; i < last; i += kLanes) max = hn::Max(max, hn::LoadU(df, scores + i));
  max = hn::MaxOfLanes(df, max);
  VF sum = hn::Zero(df);
  for (int i = 0; i < last; i += kLanes) {
    const VF weight = Exp2OfNegative(df, hn::Sub(hn::LoadU(df, scores + i), max));
    hn::StoreU(weight, df, scores + i);
    sum = hn::Add(sum, weight);
  }
  const VF weight =
      hn::IfThenElseZero(valid, Exp2OfNegative(df, hn::Sub(hn::LoadU(df, scores + last), max)));
  hn::StoreU(weight, df, scores + last);
  *max_out = hn::GetLane(max);
  *sum_out = hn::GetLane(hn::SumOfLanes(df, hn::Add(sum, weight)));
}

// --- a chunk ---

struct Scratch {
  float* q;         // [group, key_dim], scaled
  float* scores;    // [group, kChunkSlots]
  float* scaled;    // [group, kChunkSlots]
  std::byte* tile;  // kLanes rows of keys, as stored or as floats
  float* split;     // q with rotated pairs split: all first elements, then all second ones
  QuantizedQuery quantized;
};

int64_t TileBytes(const AttentionShape& shape) {
  return kLanes * std::max<int64_t>(shape.key_row_bytes, shape.key_dim * sizeof(float));
}

Scratch Prepare(const AttentionShape& shape, const ChunkJob& job) {
  const int n_q = shape.group * shape.key_dim;
  Scratch s;
  s.scores = job.scratch;
  s.scaled = s.scores + shape.group * kChunkSlots;
  s.q = s.scaled + shape.group * kChunkSlots;
  s.tile = reinterpret_cast<std::byte*>(s.q + n_q);
  for (int i = 0; i < n_q; ++i) s.q[i] = job.q[i] * shape.scale;
  if (shape.rotation.any()) {
    const float* angles = shape.rotation.Angles(job.entries.query_position);
    const int n_pairs = shape.rotation.n_rotated / 2;
    for (int h = 0; h < shape.group; ++h) {
      RotateInPlace(shape.rotation.interleaved, s.q + h * shape.key_dim, angles, angles + n_pairs,
                    n_pairs);
    }
  }
  if (!job.entries.plain()) {
    s.split = s.q;
    if (!shape.rotation.interleaved || !RotatesVectors(shape)) return s;
    s.split = reinterpret_cast<float*>(s.tile + TileBytes(shape));
    const int n_pairs = shape.rotation.n_rotated / 2;
    std::copy_n(s.q, n_q, s.split);
    for (int h = 0; h < shape.group; ++h) {
      const float* from = s.q + h * shape.key_dim;
      float* to = s.split + h * shape.key_dim;
      for (int i = 0; i < n_pairs; ++i) {
        to[i] = from[2 * i];
        to[n_pairs + i] = from[2 * i + 1];
      }
    }
    return s;
  }
  if (shape.key_type == TensorType::kQ8_0 || shape.key_type == TensorType::kQ4_0) {
    const int n_blocks = n_q / 32;
    auto* scales = reinterpret_cast<float*>(s.tile + TileBytes(shape));
    auto* sums = reinterpret_cast<int32_t*>(scales + n_blocks);
    auto* values = reinterpret_cast<int8_t*>(sums + n_blocks);
    QuantizeQuery(s.q, n_blocks, values, scales, sums);
    s.quantized = {values, scales, sums};
  }
  return s;
}

// scores[h * kChunkSlots + s] for the kLanes rows at `rows`.
void ScoreRows(const AttentionShape& shape, const Scratch& scratch, const std::byte* rows,
               float* scores) {
  switch (shape.key_type) {
    case TensorType::kF32:
      return ScoreElements<F32Elements>(rows, shape.key_row_bytes, shape, scratch.q, scores);
    case TensorType::kF16:
      return ScoreElements<F16Elements>(rows, shape.key_row_bytes, shape, scratch.q, scores);
    case TensorType::kBF16:
      return ScoreElements<Bf16Elements>(rows, shape.key_row_bytes, shape, scratch.q, scores);
    case TensorType::kQ8_0:
      return shape.block_scores->q8_0(rows, shape.key_row_bytes, scratch.quantized,
                                      shape.key_dim / 32, shape.group, scores);
    default:
      return shape.block_scores->q4_0(rows, shape.key_row_bytes, scratch.quantized,
                                      shape.key_dim / 32, shape.group, scores);
  }
}

// The first n <= kLanes floats, followed by zeros; reads nothing past them.
HWY_INLINE VF LoadFloats(const float* from, int n) {
  if (n == kLanes) return hn::LoadU(DF(), from);
  return LoadFirst<F32Elements>(reinterpret_cast<const std::byte*>(from), n);
}

// scores[h * kChunkSlots + s] = q[h] . key s, rotated to its position, for kLanes entries starting
// at `slot`. Rotated keys stay in registers. q: [kHeads][key_dim], split. Requires: RotatesVectors.
template <class At, class Angles, int kHeads, class Layout>
void ScoreRotated(const AttentionShape& shape, const Layout& layout, const ChunkJob& job, int slot,
                  const float* q, float* scores) {
  const DF df;
  const Rotation rotation = shape.rotation;
  const int64_t row_bytes = shape.key_row_bytes;
  // The rows of the tile, relative to `keys`.
  alignas(64) int32_t ascending[kLanes];
  hn::Store(hn::Iota(hn::RebindToSigned<DF>(), 0), hn::RebindToSigned<DF>(), ascending);
  const bool mapped = job.entries.rows != nullptr;
  const int32_t* rows = mapped ? job.entries.rows + slot : ascending;
  const std::byte* keys = mapped ? job.keys : job.keys + slot * row_bytes;
  const int32_t* positions = job.entries.positions + slot;
  VF fours[kHeads][kLanes / 4];
#pragma GCC unroll 1  // four times the code is no faster
  for (int four = 0; four < kLanes / 4; ++four) {
    VF acc[kHeads][4];
#pragma GCC unroll 4
    for (int s = 0; s < 4; ++s) {
      const At at{keys + rows[4 * four + s] * row_bytes};
      const Angles angles(rotation, positions[4 * four + s]);
#pragma GCC unroll 8
      for (int h = 0; h < kHeads; ++h) acc[h][s] = hn::Zero(df);
      for (int i = 0; i < layout.n_pairs; i += kLanes) {
        const RotatedPairs rotated = RotatePair(at, layout, angles, i);
#pragma GCC unroll 8
        for (int h = 0; h < kHeads; ++h) {
          const float* of_head = q + h * layout.dim;
          acc[h][s] = hn::MulAdd(rotated.a, hn::LoadU(df, of_head + i), acc[h][s]);
          acc[h][s] = hn::MulAdd(rotated.b, hn::LoadU(df, of_head + layout.n_pairs + i), acc[h][s]);
        }
      }
      for (int i = 2 * layout.n_pairs; i < layout.dim; i += kLanes) {
        const VF key = at(i);
#pragma GCC unroll 8
        for (int h = 0; h < kHeads; ++h) {
          acc[h][s] = hn::MulAdd(key, hn::LoadU(df, q + h * layout.dim + i), acc[h][s]);
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

PairLayout PairLayoutFrom(const AttentionShape& shape) {
  return {shape.key_dim, shape.rotation.n_rotated / 2, shape.rotation.interleaved};
}

// Calls score(layout). Heads of a few vectors whose dimensions all rotate get a layout known at
// compile time: with a variable one, loop overhead exceeds the arithmetic.
template <class At, class F>
HWY_INLINE void WithLayout(const AttentionShape& shape, const F& score) {
  const Rotation& rotation = shape.rotation;
  if constexpr (std::is_same_v<At, ElementsAt<F16Elements>>) {
    if (rotation.n_rotated == shape.key_dim) {
      if (shape.key_dim == 2 * kLanes) {
        return rotation.interleaved ? score(WholeLayout<2 * kLanes, true>())
                                    : score(WholeLayout<2 * kLanes, false>());
      }
      if (shape.key_dim == 4 * kLanes) {
        return rotation.interleaved ? score(WholeLayout<4 * kLanes, true>())
                                    : score(WholeLayout<4 * kLanes, false>());
      }
    }
  }
  score(PairLayoutFrom(shape));
}

template <class At>
void ScoreRotatedHeads(const AttentionShape& shape, const ChunkJob& job, int slot,
                       const Scratch& scratch, float* scores) {
  if (!shape.rotation.unit) {  // YaRN; too rare for code that keeps the keys of several heads
    for (int h = 0; h < shape.group; ++h) {
      ScoreRotated<At, RowAngles, 1>(shape, PairLayoutFrom(shape), job, slot,
                                     scratch.split + h * shape.key_dim, scores + h * kChunkSlots);
    }
    return;
  }
  ForPasses(shape.group, [&](int h, auto count) HWY_ATTR {
    const float* q = scratch.split + h * shape.key_dim;
    float* of_pass = scores + h * kChunkSlots;
    constexpr int kHeads = decltype(count)::kHeads;
    WithLayout<At>(shape, [&](const auto& layout) HWY_ATTR {
      ScoreRotated<At, SumAngles, kHeads>(shape, layout, job, slot, q, of_pass);
    });
  });
}

void ScoreRotatedTile(const AttentionShape& shape, const ChunkJob& job, int slot,
                      const Scratch& scratch, float* scores) {
  switch (shape.key_type) {
    case TensorType::kF32:
      return ScoreRotatedHeads<ElementsAt<F32Elements>>(shape, job, slot, scratch, scores);
    case TensorType::kF16:
      return ScoreRotatedHeads<ElementsAt<F16Elements>>(shape, job, slot, scratch, scores);
    case TensorType::kBF16:
      return ScoreRotatedHeads<ElementsAt<Bf16Elements>>(shape, job, slot, scratch, scores);
    case TensorType::kQ8_0:
      return ScoreRotatedHeads<BlocksAt<Q8Block>>(shape, job, slot, scratch, scores);
    default:
      return ScoreRotatedHeads<BlocksAt<Q4Block>>(shape, job, slot, scratch, scores);
  }
}

// Prefetches the rows of the entries [first, first + kLanes), which hardware prefetchers cannot
// predict.
HWY_INLINE void PrefetchRows(const AttentionShape& shape, const ChunkJob& job, int first) {
  constexpr PrefetchPolicy listed;  // row by row
  const int end = std::min(first + kLanes, job.n_slots);
  for (int entry = first; entry < end; ++entry) {
    listed.Fetch(job.keys + job.entries.rows[entry] * shape.key_row_bytes, shape.key_row_bytes);
  }
}

// Scores when keys differ from the stored rows. Keys of every type are converted to floats first:
// in registers if whole tiles are rotated, otherwise in memory.
void ScoreEntries(const AttentionShape& shape, const ChunkJob& job, const Scratch& scratch) {
  const DF df;
  auto* tile = reinterpret_cast<float*>(scratch.tile);
  const int dim = shape.key_dim;
  const bool rotated = RotatesVectors(shape);
  const PrefetchPolicy::Part keys = KeyRegion(shape, job);
  const auto score = [&](int slot, int n) HWY_ATTR {
    if (job.entries.rows == nullptr) {
      shape.prefetch.PrefetchAheadIn(keys, slot * shape.key_row_bytes, n * shape.key_row_bytes);
    } else if (!job.rows_fetched) {
      PrefetchRows(shape, job, slot + kLanes);
    }
    float* scores = scratch.scores + slot;
    if (n == kLanes && rotated) {
      ScoreRotatedTile(shape, job, slot, scratch, scores);
    } else {
      UnpackRotatedKeys(shape, job.keys, job.entries, slot, n, tile);
      std::fill(tile + n * dim, tile + kLanes * dim, 0.0f);
      ScoreElements<F32Elements>(scratch.tile, dim * int64_t{sizeof(float)}, shape, scratch.q,
                                 scores);
    }
    if (job.entries.factors == nullptr) return;
    const VF factors = LoadFloats(job.entries.factors + slot, n);
    for (int h = 0; h < shape.group; ++h) {
      float* of_head = scores + h * kChunkSlots;
      hn::StoreU(hn::Mul(hn::LoadU(df, of_head), factors), df, of_head);
    }
  };
  ForTiles(job.n_slots, shape.prefetch.streams, [&](int slot) HWY_ATTR { score(slot, kLanes); });
  const int n_rest = job.n_slots % kLanes;
  if (n_rest > 0) score(job.n_slots - n_rest, n_rest);
}

}  // namespace winnow::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
