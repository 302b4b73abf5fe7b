#define WINNOW_FLOAT_KERNELS  // see simd/targets.h; 8-bit products are in block_scores.cc

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/cpu/attention/attention_kernels.h"
#include "kernels/cpu/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention/decode_kernels.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/attention/decode_scores-inl.h"
#include "kernels/cpu/attention/weighted_sums-inl.h"
#include "kernels/cpu/simd/cache_rows-inl.h"
#include "kernels/cpu/simd/exp-inl.h"

HWY_BEFORE_NAMESPACE();
namespace winnow::kernels::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Lanes past the last entry may hold anything: the softmax drops them.
void AddBiases(const AttentionShape& shape, const ChunkJob& job, const Scratch& scratch) {
  if (job.entries.biases == nullptr) return;
  const DF df;
  for (int slot = 0; slot < job.n_slots; slot += kLanes) {
    const VF biases = LoadFloats(job.entries.biases + slot, std::min(kLanes, job.n_slots - slot));
    for (int h = 0; h < shape.group; ++h) {
      float* scores = scratch.scores + h * kChunkSlots + slot;
      hn::StoreU(hn::Add(hn::LoadU(df, scores), biases), df, scores);
    }
  }
}

void ScoreChunk(const AttentionShape& shape, const ChunkJob& job, const Scratch& scratch) {
  if (!job.entries.plain()) return ScoreEntries(shape, job, scratch);
  const int64_t tile_bytes = kLanes * shape.key_row_bytes;
  const PrefetchPolicy::Part keys = KeyRegion(shape, job);
  ForTiles(job.n_slots, shape.prefetch.streams, [&](int slot) HWY_ATTR {
    const int64_t at = slot * shape.key_row_bytes;
    shape.prefetch.PrefetchAheadIn(keys, at, tile_bytes);
    ScoreRows(shape, scratch, job.keys + at, scratch.scores + slot);
  });
  const int slot = job.n_slots / kLanes * kLanes;
  if (slot == job.n_slots) return;
  // Pad with zero rows; the softmax drops their scores.
  const int64_t rest_bytes = (job.n_slots - slot) * shape.key_row_bytes;
  std::memcpy(scratch.tile, job.keys + slot * shape.key_row_bytes, rest_bytes);
  std::memset(scratch.tile + rest_bytes, 0, tile_bytes - rest_bytes);
  ScoreRows(shape, scratch, scratch.tile, scratch.scores + slot);
}

void ScoreBiased(const AttentionShape& shape, const ChunkJob& job, const Scratch& scratch) {
  ScoreChunk(shape, job, scratch);
  AddBiases(shape, job, scratch);
}

void AccumulateValues(const AttentionShape& shape, const ChunkJob& job, const Scratch& scratch) {
  switch (shape.value_type) {
    case TensorType::kF32:
      return Accumulate<F32Elements>(shape, job, scratch.scores);
    case TensorType::kF16:
      return Accumulate<F16Elements>(shape, job, scratch.scores);
    case TensorType::kBF16:
      return Accumulate<Bf16Elements>(shape, job, scratch.scores);
    case TensorType::kQ8_0:
      return AccumulateBlocks<Q8Block>(shape, job, scratch.scores, scratch.scaled);
    default:
      return AccumulateBlocks<Q4Block>(shape, job, scratch.scores, scratch.scaled);
  }
}

void AttendChunk(const AttentionShape& shape, const ChunkJob& job) {
  Scratch scratch = Prepare(shape, job);
  if (job.weights != nullptr) scratch.scores = job.weights;
  ScoreBiased(shape, job, scratch);
  PrefetchStreams(shape.prefetch, job.values, job.n_slots, shape.value_row_bytes);
  for (int h = 0; h < shape.group; ++h) {
    float* scores = scratch.scores + h * kChunkSlots;
    SoftmaxChunk(scores, job.n_slots, job.partial.max + h, job.partial.sum + h);
  }
  if (job.next_keys != nullptr)
    PrefetchStreams(shape.prefetch, job.next_keys, kChunkSlots, shape.key_row_bytes);
  AccumulateValues(shape, job, scratch);
}

void ScoreOnly(const AttentionShape& shape, const ChunkJob& job) {
  const Scratch scratch = Prepare(shape, job);
  ScoreBiased(shape, job, scratch);
  for (int h = 0; h < shape.group; ++h) {
    const float* scores = scratch.scores + h * kChunkSlots;
    std::copy(scores, scores + job.n_slots, job.weights + h * job.weights_stride);
  }
}

// Scores of n <= kLanes entries, starting at `first`.
HWY_INLINE VF EntryScores(const SoftmaxJob& job, int64_t first, int n) {
  const DF df;
  const hn::RebindToSigned<DF> di;
  VF scores;
  if (job.rows == nullptr) {
    scores = LoadFloats(job.scores + first, n);
  } else {
    alignas(64) int32_t rows[kLanes] = {};
    std::copy_n(job.rows + first, n, rows);
    scores = hn::GatherIndex(df, job.scores, hn::Load(di, rows));
  }
  return job.factors == nullptr ? scores : hn::Mul(scores, LoadFloats(job.factors + first, n));
}

float SoftmaxEntries(const SoftmaxJob& job) {
  const DF df;
  const auto lanes = hn::Iota(df, 0);
  const auto last_n = static_cast<int>((job.n_entries - 1) % kLanes + 1);
  const int64_t last = job.n_entries - last_n;
  const auto valid = hn::Lt(lanes, hn::Set(df, static_cast<float>(last_n)));
  const VF last_scores = EntryScores(job, last, last_n);
  // Lanes without an entry repeat a valid score.
  VF max = hn::IfThenElse(valid, last_scores, hn::Set(df, hn::GetLane(last_scores)));
  for (int64_t i = 0; i < last; i += kLanes) {
    const VF scores = EntryScores(job, i, kLanes);
    hn::StoreU(scores, df, job.weights + i);
    max = hn::Max(max, scores);
  }
  max = hn::MaxOfLanes(df, max);
  VF sum = hn::Zero(df);
  for (int64_t i = 0; i < last; i += kLanes) {
    const VF weights = Exp2OfNegative(df, hn::Sub(hn::LoadU(df, job.weights + i), max));
    hn::StoreU(weights, df, job.weights + i);
    sum = hn::Add(sum, weights);
  }
  const VF weights = hn::IfThenElseZero(valid, Exp2OfNegative(df, hn::Sub(last_scores, max)));
  alignas(64) float last_weights[kLanes];
  hn::Store(weights, df, last_weights);
  std::copy_n(last_weights, last_n, job.weights + last);
  return hn::GetLane(hn::SumOfLanes(df, hn::Add(sum, weights)));
}

// Copies the rows with nonzero weight for any head to `rows`, and their weights to `weights`
// [group, kChunkSlots]. Returns their number.
int GatherUsed(const AttentionShape& shape, const ChunkJob& job, float* weights, std::byte* rows) {
  int n_used = 0;
  for (int slot = 0; slot < job.n_slots; ++slot) {
    bool any = false;
    for (int h = 0; h < shape.group; ++h) {
      const float weight = job.weights[h * job.weights_stride + slot];
      weights[h * kChunkSlots + n_used] = weight;
      any |= weight != 0;
    }
    if (!any) continue;
    std::memcpy(rows + n_used * shape.value_row_bytes, job.values + slot * shape.value_row_bytes,
                static_cast<size_t>(shape.value_row_bytes));
    ++n_used;
  }
  return n_used;
}

void AccumulateOnly(const AttentionShape& shape, const ChunkJob& job) {
  ChunkJob used = job;
  Scratch scratch;
  scratch.scores = job.scratch;
  scratch.scaled = scratch.scores + shape.group * kChunkSlots;
  const float* end = job.weights + job.n_slots;
  // If the first head has a weight for every row, no row can be skipped.
  if (std::find(static_cast<const float*>(job.weights), end, 0.0f) == end) {
    for (int h = 0; h < shape.group; ++h) {
      std::copy_n(job.weights + h * job.weights_stride, job.n_slots,
                  scratch.scores + h * kChunkSlots);
    }
  } else {
    auto* rows = reinterpret_cast<std::byte*>(scratch.scaled + shape.group * kChunkSlots);
    used.n_slots = GatherUsed(shape, job, scratch.scores, rows);
    used.values = rows;
  }
  if (used.n_slots == 0) {
    std::fill(job.partial.acc, job.partial.acc + shape.group * shape.value_dim, 0.0f);
    return;
  }
  // The kernels read whole vectors of weights.
  for (int h = 0; h < shape.group; ++h) {
    float* weights = scratch.scores + h * kChunkSlots;
    std::fill(weights + used.n_slots, weights + (used.n_slots + kLanes - 1) / kLanes * kLanes,
              0.0f);
  }
  AccumulateValues(shape, used, scratch);
}

// --- taps ---

void ReduceChunk(const ChunkTapJob& job) {
  const DF df;
  const bool max = job.reduce == TapSpec::Reduce::kMax;
  const float share = job.reduce == TapSpec::Reduce::kMean ? 1.0f / job.n_heads : 1.0f;
  int s = 0;
  for (; s + kLanes <= job.n_slots; s += kLanes) {
    VF total = hn::Zero(df);
    for (int h = 0; h < job.n_heads; ++h) {
      const VF weight = hn::Mul(hn::LoadU(df, job.weights + h * job.weights_stride + s),
                                hn::Set(df, job.factors[h]));
      total = max ? hn::Max(total, weight) : hn::Add(total, weight);
    }
    hn::StoreU(hn::Mul(total, hn::Set(df, share)), df, job.out + s);
  }
  for (; s < job.n_slots; ++s) {
    float total = 0;
    for (int h = 0; h < job.n_heads; ++h) {
      const float weight = job.weights[h * job.weights_stride + s] * job.factors[h];
      total = max ? std::max(total, weight) : total + weight;
    }
    job.out[s] = total * share;
  }
}

// Scores and scaled weights; then one of: (1) the query as floats, a tile of keys, and the split
// query or the quantised query's scales, sums and bytes; (2) a chunk of values.
int64_t DecodeFloats(const AttentionShape& shape) {
  const int64_t n_q = int64_t{shape.group} * shape.key_dim;
  const int64_t quantized_bytes = 2 * (n_q / 32) * int64_t{sizeof(float)} + n_q;
  const int64_t split_bytes = n_q * int64_t{sizeof(float)};
  const int64_t query_bytes =
      n_q * int64_t{sizeof(float)} + TileBytes(shape) + std::max(quantized_bytes, split_bytes);
  // The kernels may read the scales of kLanes rows past the last row.
  const int64_t value_bytes = (kChunkSlots + kLanes) * shape.value_row_bytes;
  const int64_t floats =
      2 * int64_t{shape.group} * kChunkSlots + std::max(query_bytes, value_bytes) / 4 + 1;
  return (floats + 15) / 16 * 16;
}

const DecodeKernels& DecodeTable() {
  static constexpr DecodeKernels kTable = {.attend_chunk = AttendChunk,
                                           .score_chunk = ScoreOnly,
                                           .softmax = SoftmaxEntries,
                                           .accumulate_chunk = AccumulateOnly,
                                           .reduce_chunk = ReduceChunk,
                                           .scratch_floats = DecodeFloats,
                                           .n_lanes = kLanes};
  return kTable;
}

}  // namespace winnow::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace winnow::kernels::cpu {

HWY_EXPORT(DecodeTable);

const DecodeKernels& DecodeKernelsFor(int64_t target) {
  return ForTarget(HWY_DISPATCH_TABLE(DecodeTable), target)();
}

}  // namespace winnow::kernels::cpu
#endif
