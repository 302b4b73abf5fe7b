#define WINNOW_FLOAT_KERNELS  // see simd/targets.h
#include <algorithm>

#include "kernels/cpu/attention/attention_kernels.h"
#include "kernels/cpu/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention/prefill_kernels.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/attention/block_sums-inl.h"
#include "kernels/cpu/attention/entries-inl.h"
#include "kernels/cpu/attention/query_tiles-inl.h"
#include "kernels/cpu/simd/exp-inl.h"

// Every lane of a vector is a row (query and head). Queries are transposed once per block. Keys and
// values then only need unpacking to floats: the kernels multiply one of their elements with a
// vector of rows, and the softmax needs no operation across lanes.
HWY_BEFORE_NAMESPACE();
namespace winnow::kernels::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// --- products ---

// results[i * kBlockRows + row] = results[...] * factor[row] + sum over the slots of weight *
// value, for kRows dimensions and kColumns vectors of rows.
//   values [slot, dim], weights [slot, kBlockRows]
template <int kRows, int kColumns>
void AccumulatePanel(const float* values, int dim, int n_slots, const float* weights,
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
void AccumulateColumns(const float* values, int dim, int n_slots, const float* weights,
                       const float* factors, float* results) {
  int i = 0;
  for (; i + kPanel <= dim; i += kPanel) {
    AccumulatePanel<kPanel, kColumns>(values + i, dim, n_slots, weights, factors,
                                      results + i * kBlockRows);
  }
  for (; i + 2 <= dim; i += 2) {
    AccumulatePanel<2, kColumns>(values + i, dim, n_slots, weights, factors,
                                 results + i * kBlockRows);
  }
  if (i < dim) {
    AccumulatePanel<1, kColumns>(values + i, dim, n_slots, weights, factors,
                                 results + i * kBlockRows);
  }
}

// --- softmax ---

// Running statistics of kColumns vectors of rows.
struct Softmax {
  float* max;            // [row]
  float* sum;            // [row]
  float* factors;        // [row]: out, factors that rescale the results so far
  const int32_t* limit;  // [row]: number of the tile's slots that the row sees
};

// Replaces scores [slot, kBlockRows] by weights 2^(score - max) and updates the statistics. All
// rows see the first n_clear slots.
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
  const float* biases;  // [n_slots], or null
};

template <int kColumns>
void AddBiases(const float* biases, int n_slots, float* scores) {
  const DF df;
  for (int s = 0; s < n_slots; ++s) {
    const VF bias = hn::Set(df, biases[s]);
#pragma GCC unroll 4
    for (int c = 0; c < kColumns; ++c) {
      float* score = scores + s * kBlockRows + c * kLanes;
      hn::StoreU(hn::Add(hn::LoadU(df, score), bias), df, score);
    }
  }
}

template <int kColumns>
void AttendTile(const AttentionShape& shape, const Tile& tile, const Softmax& softmax,
                const float* queries, float* scores, float* results) {
  ScoreColumns<kColumns>(tile.keys, tile.n_slots, shape.key_dim, queries, kBlockRows, scores);
  if (tile.biases != nullptr) AddBiases<kColumns>(tile.biases, tile.n_slots, scores);
  UpdateSoftmax<kColumns>(softmax, tile.n_slots, tile.n_clear, scores);
  AccumulateColumns<kColumns>(tile.values, shape.value_dim, tile.n_slots, scores, softmax.factors,
                              results);
}

void AttendTileOfWidth(int n_columns, const AttentionShape& shape, const Tile& tile,
                       const Softmax& softmax, const float* queries, float* scores,
                       float* results) {
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
  float* tile_scores = results + shape.value_dim * kBlockRows;
  float* keys = tile_scores + kTileSlots * kBlockRows;
  float* values = keys + kTileSlots * shape.key_dim;
  alignas(64) float max[kBlockRows];
  alignas(64) float sum[kBlockRows] = {};
  alignas(64) float factors[kBlockRows];
  alignas(64) int32_t limit[kBlockRows];
  int64_t visible[kBlockRows];
  alignas(64) int32_t offsets[kBlockRows];
  alignas(64) int32_t angles[kBlockRows];
  const bool keep = job.columns.sums != nullptr;
  const KeptWeights kept(job.columns.weights, job.end_slot);

  const int64_t first_query = job.first_row / shape.group;
  for (int r = 0; r < kBlockRows; ++r) {
    // Rows past the last one repeat it; their results are not written.
    const int64_t row = job.first_row + std::min(r, job.n_rows - 1);
    const int64_t query = row / shape.group;
    offsets[r] = static_cast<int32_t>((query - first_query) * job.q_stride +
                                      row % shape.group * shape.key_dim);
    angles[r] = static_cast<int32_t>((query - first_query) * shape.rotation.stride);
    visible[r] = job.visible_before + query + 1;
  }
  std::fill(max, max + kBlockRows, kNoScore);
  std::fill(results, results + shape.value_dim * kBlockRows, 0.0f);
  for (int r = 0; r < job.n_rows; r += kLanes) {
    PackQueries(shape, {job.q + first_query * job.q_stride, offsets + r},
                {shape.rotation.Angles(job.entries.query_position + first_query), angles + r},
                queries + r, kBlockRows);
  }

  for (int64_t slot = job.first_slot; slot < job.end_slot; slot += kTileSlots) {
    const auto n = static_cast<int>(std::min<int64_t>(kTileSlots, job.end_slot - slot));
    UnpackKeys(shape, job.keys, job.entries, slot, n, keys);
    UnpackEntries({shape.value_type, shape.value_row_bytes, shape.value_dim}, job.values,
                  job.entries.rows, slot, n, values);
    for (int r = 0; r < kBlockRows; ++r) {
      limit[r] = static_cast<int32_t>(std::clamp<int64_t>(visible[r] - slot, 0, n));
    }
    const float* biases = job.entries.biases == nullptr ? nullptr : job.entries.biases + slot;
    float* scores = keep ? kept.Weights(slot) : tile_scores;
    for (int r = 0; r < job.n_rows; r += kVectors * kLanes) {
      const int columns = std::min(kVectors, (job.n_rows - r + kLanes - 1) / kLanes);
      const int seen = limit[r + columns * kLanes - 1];
      if (keep) ClearUnseen(seen, n, columns * kLanes, scores + r);
      if (seen == 0) continue;
      AttendTileOfWidth(columns, shape, {seen, std::min(limit[r], seen), keys, values, biases},
                        {max + r, sum + r, factors + r, limit + r}, queries + r, scores + r,
                        results + r);
    }
    if (keep) std::copy(max, max + kBlockRows, kept.Max(slot));
  }
  if (keep) SumColumns(shape, job, kept, max, sum);

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

int64_t BlockFloats(const AttentionShape& shape) {
  const int64_t floats = (shape.key_dim + shape.value_dim + kTileSlots) * int64_t{kBlockRows} +
                         kTileSlots * int64_t{shape.key_dim + shape.value_dim};
  return (floats + 15) / 16 * 16;
}

const PrefillKernels& PrefillTable() {
  static constexpr PrefillKernels kTable = {.attend_block = AttendBlock,
                                            .scratch_floats = BlockFloats};
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
