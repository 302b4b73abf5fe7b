#include <algorithm>
#include <cstring>

#include "kernels/cpu/attention_kernels.h"
#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention_prefill.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/cache_rows-inl.h"
#include "kernels/cpu/exp-inl.h"

// The lanes of all vectors here are rows (queries times heads). Queries are transposed once per
// block; then keys and values only need unpacking to floats, one element at a time meets a vector
// of rows, and the softmax never looks across lanes.
HWY_BEFORE_NAMESPACE();
namespace winnow::kernels::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using DI = hn::RebindToSigned<DF>;
using VI = hn::Vec<DI>;

// Slots unpacked at a time by attention: with these, queries, keys, scores, values and results of a
// block of rows fit a first-level cache at 64 dimensions.
constexpr int kTileSlots = 48;
// Tiles of accumulators: kPanel elements of keys or values times up to kVectors vectors of rows.
constexpr int kPanel = 6;
constexpr int kVectors = kLanes == 16 ? 4 : 2;

// --- unpacking ---

template <class Elements>
void UnpackElements(const std::byte* from, int64_t row_bytes, int n_rows, int dim, float* out) {
  for (int row = 0; row < n_rows; ++row, from += row_bytes, out += dim) {
    int i = 0;
    for (; i + kLanes <= dim; i += kLanes) {
      hn::StoreU(Elements::Load(from + i * Elements::kBytes), DF(), out + i);
    }
    if (i == dim) continue;
    alignas(64) float rest[kLanes];
    hn::Store(LoadFirst<Elements>(from + i * Elements::kBytes, dim - i), DF(), rest);
    std::copy(rest, rest + (dim - i), out + i);
  }
}

// Rows of blocks lie one after another too.
template <class Block>
void UnpackBlocks(const std::byte* from, int n_blocks, float* out) {
  for (int block = 0; block < n_blocks; ++block, from += Block::kBytes, out += 32) {
    const VF scale = LoadScale(from);
#pragma GCC unroll 8
    for (int part = 0; part < 32 / kLanes; ++part) {
      hn::StoreU(hn::Mul(Block::Load(from, part), scale), DF(), out + part * kLanes);
    }
  }
}

void UnpackRows(TensorType type, const std::byte* from, int64_t row_bytes, int n_rows, int dim,
                float* out) {
  switch (type) {
    case TensorType::kF32:
      return UnpackElements<F32Elements>(from, row_bytes, n_rows, dim, out);
    case TensorType::kF16:
      return UnpackElements<F16Elements>(from, row_bytes, n_rows, dim, out);
    case TensorType::kBF16:
      return UnpackElements<Bf16Elements>(from, row_bytes, n_rows, dim, out);
    case TensorType::kQ8_0:
      return UnpackBlocks<Q8Block>(from, n_rows * dim / 32, out);
    default:
      return UnpackBlocks<Q4Block>(from, n_rows * dim / 32, out);
  }
}

// out[i * stride + lane] = q[offsets[lane] + i] * scale for kLanes lanes.
void PackQueries(const float* q, const int32_t* offsets, int dim, float scale, float* out,
                 int64_t stride) {
  const DF df;
  const VI indices = hn::LoadU(DI(), offsets);
  const VF factor = hn::Set(df, scale);
  for (int i = 0; i < dim; ++i) {
    hn::StoreU(hn::Mul(hn::GatherIndex(df, q + i, indices), factor), df, out + i * stride);
  }
}

// --- products ---

// scores[s * stride + row] = key s . query row, for kRows slots and kColumns vectors of rows.
//   keys [slot, dim], queries [dim, stride]
template <int kRows, int kColumns>
void ScorePanel(const float* keys, int dim, const float* queries, int64_t stride, float* scores) {
  const DF df;
  VF acc[kRows][kColumns];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int c = 0; c < kColumns; ++c) acc[r][c] = hn::Zero(df);
  }
  for (int i = 0; i < dim; ++i) {
    VF query[kColumns];
#pragma GCC unroll 4
    for (int c = 0; c < kColumns; ++c) query[c] = hn::LoadU(df, queries + i * stride + c * kLanes);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const VF key = hn::Set(df, keys[r * dim + i]);
#pragma GCC unroll 4
      for (int c = 0; c < kColumns; ++c) acc[r][c] = hn::MulAdd(key, query[c], acc[r][c]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int c = 0; c < kColumns; ++c) {
      hn::StoreU(acc[r][c], df, scores + r * stride + c * kLanes);
    }
  }
}

template <int kColumns>
void ScoreColumns(const float* keys, int n_slots, int dim, const float* queries, int64_t stride,
                  float* scores) {
  int s = 0;
  for (; s + kPanel <= n_slots; s += kPanel) {
    ScorePanel<kPanel, kColumns>(keys + s * dim, dim, queries, stride, scores + s * stride);
  }
  for (; s + 2 <= n_slots; s += 2) {
    ScorePanel<2, kColumns>(keys + s * dim, dim, queries, stride, scores + s * stride);
  }
  if (s < n_slots) {
    ScorePanel<1, kColumns>(keys + s * dim, dim, queries, stride, scores + s * stride);
  }
}

// results[i * kBlockRows + row] = results[...] * factor[row] + sum over the slots of weight *
// value, for kRows dimensions and kColumns vectors of rows.
//   values [slot, dim], weights [slot, kBlockRows]
template <int kRows, int kColumns>
void WeighPanel(const float* values, int dim, int n_slots, const float* weights,
                const float* factors, float* results) {
  const DF df;
  VF acc[kRows][kColumns];
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int c = 0; c < kColumns; ++c) {
      acc[r][c] = hn::Mul(hn::LoadU(df, results + r * kBlockRows + c * kLanes),
                          hn::LoadU(df, factors + c * kLanes));
    }
  }
  for (int s = 0; s < n_slots; ++s) {
    VF weight[kColumns];
#pragma GCC unroll 4
    for (int c = 0; c < kColumns; ++c) {
      weight[c] = hn::LoadU(df, weights + s * kBlockRows + c * kLanes);
    }
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const VF value = hn::Set(df, values[s * dim + r]);
#pragma GCC unroll 4
      for (int c = 0; c < kColumns; ++c) acc[r][c] = hn::MulAdd(value, weight[c], acc[r][c]);
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int c = 0; c < kColumns; ++c) {
      hn::StoreU(acc[r][c], df, results + r * kBlockRows + c * kLanes);
    }
  }
}

template <int kColumns>
void WeighColumns(const float* values, int dim, int n_slots, const float* weights,
                  const float* factors, float* results) {
  int i = 0;
  for (; i + kPanel <= dim; i += kPanel) {
    WeighPanel<kPanel, kColumns>(values + i, dim, n_slots, weights, factors,
                                 results + i * kBlockRows);
  }
  for (; i + 2 <= dim; i += 2) {
    WeighPanel<2, kColumns>(values + i, dim, n_slots, weights, factors, results + i * kBlockRows);
  }
  if (i < dim) {
    WeighPanel<1, kColumns>(values + i, dim, n_slots, weights, factors, results + i * kBlockRows);
  }
}

// --- softmax ---

// Running statistics of kColumns vectors of rows, and the scores they meet.
struct Softmax {
  float* max;            // [row]
  float* sum;            // [row]
  float* factors;        // [row]: out, what the results so far are to be multiplied by
  const int32_t* limit;  // [row]: slots seen, counted from the tile's first
};

// Turns scores [slot, kBlockRows] into weights 2^(score - max). All rows see the first n_clear
// slots.
template <int kColumns>
void UpdateSoftmax(const Softmax& softmax, int n_slots, int n_clear, float* scores) {
  const DF df;
  const DI di;
  VF max[kColumns], sum[kColumns];
  VI limit[kColumns];
#pragma GCC unroll 4
  for (int c = 0; c < kColumns; ++c) {
    max[c] = hn::LoadU(df, softmax.max + c * kLanes);
    limit[c] = hn::LoadU(di, softmax.limit + c * kLanes);
    sum[c] = hn::Zero(df);
  }
  for (int s = 0; s < n_clear; ++s) {
#pragma GCC unroll 4
    for (int c = 0; c < kColumns; ++c) {
      max[c] = hn::Max(max[c], hn::LoadU(df, scores + s * kBlockRows + c * kLanes));
    }
  }
  for (int s = n_clear; s < n_slots; ++s) {
#pragma GCC unroll 4
    for (int c = 0; c < kColumns; ++c) {
      const auto seen = hn::RebindMask(df, hn::Lt(hn::Set(di, s), limit[c]));
      const VF score = hn::LoadU(df, scores + s * kBlockRows + c * kLanes);
      max[c] = hn::Max(max[c], hn::IfThenElse(seen, score, hn::Set(df, kNoScore)));
    }
  }
  for (int s = 0; s < n_slots; ++s) {
#pragma GCC unroll 4
    for (int c = 0; c < kColumns; ++c) {
      float* score = scores + s * kBlockRows + c * kLanes;
      VF weight = Exp2OfNegative(df, hn::Sub(hn::LoadU(df, score), max[c]));
      if (s >= n_clear) {
        const auto seen = hn::RebindMask(df, hn::Lt(hn::Set(di, s), limit[c]));
        weight = hn::IfThenElseZero(seen, weight);
      }
      hn::StoreU(weight, df, score);
      sum[c] = hn::Add(sum[c], weight);
    }
  }
#pragma GCC unroll 4
  for (int c = 0; c < kColumns; ++c) {
    float* old_max = softmax.max + c * kLanes;
    float* old_sum = softmax.sum + c * kLanes;
    const VF factor = Exp2OfNegative(df, hn::Sub(hn::LoadU(df, old_max), max[c]));
    hn::StoreU(factor, df, softmax.factors + c * kLanes);
    hn::StoreU(hn::MulAdd(hn::LoadU(df, old_sum), factor, sum[c]), df, old_sum);
    hn::StoreU(max[c], df, old_max);
  }
}

// --- a block of rows ---

struct Tile {
  int n_slots;
  int n_clear;
  const float* keys;    // [n_slots, key_dim]
  const float* values;  // [n_slots, value_dim]
};

template <int kColumns>
void AttendTile(const AttentionShape& shape, const Tile& tile, const Softmax& softmax,
                const float* queries, float* scores, float* results) {
  ScoreColumns<kColumns>(tile.keys, tile.n_slots, shape.key_dim, queries, kBlockRows, scores);
  UpdateSoftmax<kColumns>(softmax, tile.n_slots, tile.n_clear, scores);
  WeighColumns<kColumns>(tile.values, shape.value_dim, tile.n_slots, scores, softmax.factors,
                         results);
}

void AttendTileOf(int n_columns, const AttentionShape& shape, const Tile& tile,
                  const Softmax& softmax, const float* queries, float* scores, float* results) {
  switch (n_columns) {
    case 1:
      return AttendTile<1>(shape, tile, softmax, queries, scores, results);
    case 2:
      return AttendTile<2>(shape, tile, softmax, queries, scores, results);
#if HWY_MAX_BYTES == 64
    case 3:
      return AttendTile<3>(shape, tile, softmax, queries, scores, results);
    default:
      return AttendTile<4>(shape, tile, softmax, queries, scores, results);
#endif
  }
}

void AttendBlock(const AttentionShape& shape, const BlockJob& job) {
  const DF df;
  float* queries = job.scratch;  // [key_dim, kBlockRows]
  float* results = queries + shape.key_dim * kBlockRows;
  float* scores = results + shape.value_dim * kBlockRows;
  float* keys = scores + kTileSlots * kBlockRows;
  float* values = keys + kTileSlots * shape.key_dim;
  alignas(64) float max[kBlockRows];
  alignas(64) float sum[kBlockRows] = {};
  alignas(64) float factors[kBlockRows];
  alignas(64) int32_t limit[kBlockRows];
  int64_t visible[kBlockRows];
  alignas(64) int32_t offsets[kBlockRows];

  const int64_t first_query = job.first_row / shape.group;
  for (int r = 0; r < kBlockRows; ++r) {
    // Rows behind the last repeat it, and their results are not written.
    const int64_t row = job.first_row + std::min(r, job.n_rows - 1);
    const int64_t query = row / shape.group;
    offsets[r] = static_cast<int32_t>((query - first_query) * job.q_stride +
                                      row % shape.group * shape.key_dim);
    visible[r] = job.visible_before + query + 1;
  }
  std::fill(max, max + kBlockRows, kNoScore);
  std::fill(results, results + shape.value_dim * kBlockRows, 0.0f);
  for (int r = 0; r < job.n_rows; r += kLanes) {
    PackQueries(job.q + first_query * job.q_stride, offsets + r, shape.key_dim, shape.scale,
                queries + r, kBlockRows);
  }

  for (int64_t slot = job.first_slot; slot < job.end_slot; slot += kTileSlots) {
    const auto n = static_cast<int>(std::min<int64_t>(kTileSlots, job.end_slot - slot));
    UnpackRows(shape.key_type, job.keys + slot * shape.key_row_bytes, shape.key_row_bytes, n,
               shape.key_dim, keys);
    UnpackRows(shape.value_type, job.values + slot * shape.value_row_bytes, shape.value_row_bytes,
               n, shape.value_dim, values);
    for (int r = 0; r < kBlockRows; ++r) {
      limit[r] = static_cast<int32_t>(std::clamp<int64_t>(visible[r] - slot, 0, n));
    }
    for (int r = 0; r < job.n_rows; r += kVectors * kLanes) {
      const int columns = std::min(kVectors, (job.n_rows - r + kLanes - 1) / kLanes);
      const int seen = limit[r + columns * kLanes - 1];
      if (seen == 0) continue;
      AttendTileOf(columns, shape, {seen, std::min(limit[r], seen), keys, values},
                   {max + r, sum + r, factors + r, limit + r}, queries + r, scores + r,
                   results + r);
    }
  }

  const VI lanes = hn::Mul(hn::Iota(DI(), 0), hn::Set(DI(), kBlockRows));
  for (int r = 0; r < job.n_rows; ++r) {
    job.max[r] = max[r];
    job.sum[r] = sum[r];
    const float factor = job.divide ? 1 / sum[r] : 1.0f;
    int i = 0;
    for (; i + kLanes <= shape.value_dim; i += kLanes) {
      const VF result = hn::GatherIndex(df, results + i * kBlockRows + r, lanes);
      hn::StoreU(hn::Mul(result, hn::Set(df, factor)), df, job.out[r] + i);
    }
    for (; i < shape.value_dim; ++i) job.out[r][i] = results[i * kBlockRows + r] * factor;
  }
}

// --- taps ---

void ScoreHeads(const float* keys, int n_slots, int dim, int group, const float* queries,
                float* scores) {
  const int64_t stride = int64_t{group} * kLanes;
  for (int h = 0; h < group; h += kVectors) {
    const float* q = queries + h * kLanes;
    float* to = scores + h * kLanes;
    switch (std::min(kVectors, group - h)) {
      case 1:
        ScoreColumns<1>(keys, n_slots, dim, q, stride, to);
        break;
      case 2:
        ScoreColumns<2>(keys, n_slots, dim, q, stride, to);
        break;
#if HWY_MAX_BYTES == 64
      case 3:
        ScoreColumns<3>(keys, n_slots, dim, q, stride, to);
        break;
      default:
        ScoreColumns<4>(keys, n_slots, dim, q, stride, to);
        break;
#endif
    }
  }
}

// One slot's weights from kLanes queries, reduced over the heads.
//   scores, max, inverse  [group, kLanes]
HWY_INLINE VF ReduceHeads(TapSpec::Reduce reduce, int group, const float* scores, const float* max,
                          const float* inverse) {
  const DF df;
  VF total = hn::Zero(df);
  for (int h = 0; h < group; ++h) {
    const VF score = hn::LoadU(df, scores + h * kLanes);
    const VF weight = hn::Mul(Exp2OfNegative(df, hn::Sub(score, hn::LoadU(df, max + h * kLanes))),
                              hn::LoadU(df, inverse + h * kLanes));
    total = reduce == TapSpec::Reduce::kMax ? hn::Max(total, weight) : hn::Add(total, weight);
  }
  return total;
}

// The lanes are queries here, so that a group reduces lane by lane.
void TapSlots(const AttentionShape& shape, const TapJob& job) {
  const DF df;
  const DI di;
  const int group = shape.group;
  float* keys = job.scratch;
  float* queries = keys + kTapSlots * shape.key_dim;                  // [key_dim, group, kLanes]
  float* scores = queries + int64_t{shape.key_dim} * group * kLanes;  // [kPanel, group, kLanes]
  float* max = scores + kPanel * group * kLanes;                      // [group, kLanes]
  float* inverse = max + group * kLanes;
  const float share = job.reduce == TapSpec::Reduce::kMean ? 1.0f / group : 1.0f;
  UnpackRows(shape.key_type, job.keys + job.first_slot * shape.key_row_bytes, shape.key_row_bytes,
             job.n_slots, shape.key_dim, keys);
  if (job.column_sums != nullptr) std::fill(job.column_sums, job.column_sums + job.n_slots, 0.0);

  // Queries before this one see none of the slots.
  const int64_t first_seeing = std::max(job.first_query, job.first_slot - job.visible_before);
  for (int64_t query = first_seeing; query < job.end_query; query += kLanes) {
    const auto n_queries = static_cast<int>(std::min<int64_t>(kLanes, job.end_query - query));
    alignas(64) int32_t offsets[kLanes];
    alignas(64)
        int32_t limit[kLanes] = {};  // of slots seen from first_slot on; none for surplus lanes
    for (int h = 0; h < group; ++h) {
      for (int lane = 0; lane < kLanes; ++lane) {
        const int q = std::min(lane, n_queries - 1);
        offsets[lane] = static_cast<int32_t>(q * job.q_stride);
        max[h * kLanes + lane] = job.max[(query + q) * group + h];
        inverse[h * kLanes + lane] = share / job.sum[(query + q) * group + h];
        limit[lane] =
            lane < n_queries
                ? static_cast<int32_t>(std::clamp<int64_t>(
                      job.visible_before + query + lane + 1 - job.first_slot, 0, job.n_slots))
                : 0;
      }
      PackQueries(job.q + query * job.q_stride + h * shape.key_dim, offsets, shape.key_dim,
                  shape.scale, queries + h * kLanes, int64_t{group} * kLanes);
    }
    const int seen = limit[n_queries - 1];
    const VI limits = hn::LoadU(di, limit);
    for (int first = 0; first < seen; first += kPanel) {
      const int n = std::min(kPanel, seen - first);
      ScoreHeads(keys + first * shape.key_dim, n, shape.key_dim, group, queries, scores);
      for (int s = 0; s < n; ++s) {
        VF weight = ReduceHeads(job.reduce, group, scores + s * group * kLanes, max, inverse);
        const auto visible = hn::Lt(hn::Set(di, first + s), limits);
        weight = hn::IfThenElseZero(hn::RebindMask(df, visible), weight);
        if (job.column_sums != nullptr) {
          job.column_sums[first + s] += hn::GetLane(hn::SumOfLanes(df, weight));
        }
        if (job.rows != nullptr && query + n_queries > job.first_row_query) {
          alignas(64) float weights[kLanes];
          hn::Store(weight, df, weights);
          for (int lane = 0; lane < n_queries; ++lane) {
            const int64_t row = query + lane - job.first_row_query;
            if (row >= 0) job.rows[row * job.rows_stride + first + s] = weights[lane];
          }
        }
      }
    }
  }
}

int64_t PrefillFloats(const AttentionShape& shape) {
  const int64_t block = (shape.key_dim + shape.value_dim + kTileSlots) * int64_t{kBlockRows} +
                        kTileSlots * int64_t{shape.key_dim + shape.value_dim};
  const int64_t taps = kTapSlots * int64_t{shape.key_dim} +
                       (shape.key_dim + kPanel + 2) * int64_t{shape.group} * kLanes;
  return (std::max(block, taps) + 15) / 16 * 16;
}

const PrefillKernels& PrefillTable() {
  static constexpr PrefillKernels kTable = {
      .attend_block = AttendBlock, .tap_slots = TapSlots, .scratch_floats = PrefillFloats};
  return kTable;
}

}  // namespace winnow::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace winnow::kernels::cpu {

HWY_EXPORT(PrefillTable);

const PrefillKernels& PrefillKernelsFor(int64_t target) {
  return ForTarget(HWY_DISPATCH_TABLE(PrefillTable), target)();
}

}  // namespace winnow::kernels::cpu
#endif
