#define WINNOW_FLOAT_KERNELS  // see simd/targets.h
#include <algorithm>
#include <vector>

#include "kernels/cpu/attention/attention_kernels.h"
#include "kernels/cpu/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/attention/tap_kernels.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/attention/entries-inl.h"
#include "kernels/cpu/attention/query_tiles-inl.h"
#include "kernels/cpu/simd/exp-inl.h"

// The second pass over the keys: recomputes the weights from the row statistics of the first pass.
HWY_BEFORE_NAMESPACE();
namespace winnow::kernels::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

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

// Working memory of one TapJob.
struct TapScratch {
  float* keys;     // [kTapSlots, key_dim]
  float* queries;  // [key_dim, group, kLanes]
  float* scores;   // [kPanel, group, kLanes]
  float* max;      // [group, kLanes]
  float* inverse;  // [group, kLanes]: 1 / sum, times 1 / group for the mean
  float* sums;     // [list, kTapSlots, kLanes]: sums not yet flushed to the taps; or null
  float* squares;  // the same
  float* largest;  // [list, kTapSlots, kLanes]; or null
  int64_t n_floats;

  TapScratch(const AttentionShape& shape, const TapSpec& taps, float* from) {
    const int64_t lanes = int64_t{shape.group} * kLanes;
    const int64_t list_floats = NLists(shape, taps) * kTapSlots * int64_t{kLanes};
    n_floats = 0;
    const auto take = [&](int64_t n) {
      float* at = from == nullptr ? nullptr : from + n_floats;  // null: only count
      n_floats += n;
      return at;
    };
    keys = take((kTapSlots * int64_t{shape.key_dim} + kLanes - 1) / kLanes * kLanes);
    queries = take(shape.key_dim * lanes);
    scores = take(kPanel * lanes);
    max = take(lanes);
    inverse = take(lanes);
    sums = taps.column_sums ? take(list_floats) : nullptr;
    squares = taps.square_sums ? take(list_floats) : nullptr;
    largest = taps.column_max ? take(list_floats) : nullptr;
  }

  static int NLists(const AttentionShape& shape, const TapSpec& taps) {
    return taps.reduce == TapSpec::Reduce::kNone ? shape.group : 1;
  }
};

// One slot's weights from kLanes queries, reduced over n_heads query heads.
//   scores, max, inverse  [head, kLanes]
HWY_INLINE VF ReduceHeads(bool take_max, int n_heads, const float* scores, const float* max,
                          const float* inverse) {
  const DF df;
  VF total = hn::Zero(df);
  for (int h = 0; h < n_heads; ++h) {
    const VF score = hn::LoadU(df, scores + h * kLanes);
    const VF weight = hn::Mul(Exp2OfNegative(df, hn::Sub(score, hn::LoadU(df, max + h * kLanes))),
                              hn::LoadU(df, inverse + h * kLanes));
    total = take_max ? hn::Max(total, weight) : hn::Add(total, weight);
  }
  return total;
}

// Adds the lane sums to the taps and zeroes them. Floats sum some dozen weights at most; doubles
// sum the rest.
void FlushSums(int n_lists, int64_t first_list, int64_t first_slot, int n_slots, float* sums,
               std::vector<std::vector<double>>& found) {
  const DF df;
  for (int list = 0; list < n_lists; ++list) {
    double* to = found[static_cast<size_t>(first_list + list)].data() + first_slot;
    float* lanes = sums + int64_t{list} * kTapSlots * kLanes;
    for (int s = 0; s < n_slots; ++s) {
      to[s] += hn::GetLane(hn::SumOfLanes(df, hn::LoadU(df, lanes + s * kLanes)));
      hn::StoreU(hn::Zero(df), df, lanes + s * kLanes);
    }
  }
}

// Stores column maxima. Called once per job: maxima lose no precision, so they need no flush in
// between.
void StoreMaxima(int n_lists, int64_t first_list, int64_t first_slot, int n_slots,
                 const float* largest, std::vector<std::vector<float>>& found) {
  const DF df;
  for (int list = 0; list < n_lists; ++list) {
    float* to = found[static_cast<size_t>(first_list + list)].data() + first_slot;
    const float* lanes = largest + int64_t{list} * kTapSlots * kLanes;
    for (int s = 0; s < n_slots; ++s) {
      to[s] = hn::GetLane(hn::MaxOfLanes(df, hn::LoadU(df, lanes + s * kLanes)));
    }
  }
}

// Packs kLanes queries of all heads, with their maxima and inverse sums. Returns how many slots the
// last one sees.
int PackTapQueries(const AttentionShape& shape, const TapJob& job, int64_t query, int n_queries,
                   const TapScratch& scratch, int32_t* limit) {
  const int group = shape.group;
  const float share = job.taps.reduce == TapSpec::Reduce::kMean ? 1.0f / group : 1.0f;
  alignas(64) int32_t offsets[kLanes];
  alignas(64) int32_t angles[kLanes];
  for (int lane = 0; lane < kLanes; ++lane) {
    const int q = std::min(lane, n_queries - 1);  // surplus lanes see nothing
    offsets[lane] = static_cast<int32_t>(q * job.q_stride);
    angles[lane] = static_cast<int32_t>(q * shape.rotation.stride);
    limit[lane] = lane < n_queries
                      ? static_cast<int32_t>(std::clamp<int64_t>(
                            job.visible_before + query + lane + 1 - job.first_slot, 0, job.n_slots))
                      : 0;
    for (int h = 0; h < group; ++h) {
      scratch.max[h * kLanes + lane] = job.max[(query + q) * group + h];
      scratch.inverse[h * kLanes + lane] = share / job.sum[(query + q) * group + h];
    }
  }
  for (int h = 0; h < group; ++h) {
    PackQueries(shape, {job.q + query * job.q_stride + h * shape.key_dim, offsets},
                {shape.rotation.Angles(job.entries.query_position + query), angles},
                scratch.queries + h * kLanes, int64_t{group} * kLanes);
  }
  return limit[n_queries - 1];
}

// scores [slot, group, kLanes]
void AddTapBiases(const float* biases, int n_slots, int group, float* scores) {
  const DF df;
  for (int s = 0; s < n_slots; ++s) {
    const VF bias = hn::Set(df, biases[s]);
    for (int h = 0; h < group; ++h) {
      float* score = scores + (s * group + h) * kLanes;
      hn::StoreU(hn::Add(hn::LoadU(df, score), bias), df, score);
    }
  }
}

// Every lane is a query, so that a group reduces lane by lane.
void TapSlots(const AttentionShape& shape, const TapJob& job) {
  const DF df;
  const DI di;
  const int group = shape.group;
  const TapScratch scratch(shape, job.taps, job.scratch);
  const int n_lists = TapScratch::NLists(shape, job.taps);
  const int heads_per_list = group / n_lists;
  const bool take_max = job.taps.reduce == TapSpec::Reduce::kMax;
  UnpackKeys(shape, job.keys, job.entries, job.first_slot, job.n_slots, scratch.keys);
  const int64_t list_floats = kTapSlots * int64_t{kLanes};
  if (scratch.sums != nullptr) std::fill_n(scratch.sums, n_lists * list_floats, 0.0f);
  if (scratch.squares != nullptr) std::fill_n(scratch.squares, n_lists * list_floats, 0.0f);
  if (scratch.largest != nullptr) std::fill_n(scratch.largest, n_lists * list_floats, 0.0f);
  const auto flush = [&] {
    if (scratch.sums != nullptr) {
      FlushSums(n_lists, job.first_list, job.first_slot, job.n_slots, scratch.sums, *job.sums);
    }
    if (scratch.squares != nullptr) {
      FlushSums(n_lists, job.first_list, job.first_slot, job.n_slots, scratch.squares,
                job.found->square_sums);
    }
  };

  constexpr int kBlocksPerFlush = 64;
  int n_blocks = 0;
  // Queries before this one see none of the slots.
  const int64_t first_seeing = std::max(job.first_query, job.first_slot - job.visible_before);
  for (int64_t query = first_seeing; query < job.end_query; query += kLanes) {
    const auto n_queries = static_cast<int>(std::min<int64_t>(kLanes, job.end_query - query));
    alignas(64) int32_t limit[kLanes];  // number of the job's slots that each query sees
    const int seen = PackTapQueries(shape, job, query, n_queries, scratch, limit);
    const VI limits = hn::LoadU(di, limit);
    const bool in_rows = job.taps.last_rows > 0 && query + n_queries > job.first_row_query;
    for (int first = 0; first < seen; first += kPanel) {
      const int n = std::min(kPanel, seen - first);
      ScoreHeads(scratch.keys + first * shape.key_dim, n, shape.key_dim, group, scratch.queries,
                 scratch.scores);
      if (job.entries.biases != nullptr) {
        AddTapBiases(job.entries.biases + job.first_slot + first, n, group, scratch.scores);
      }
      for (int s = 0; s < n; ++s) {
        const auto visible = hn::RebindMask(df, hn::Lt(hn::Set(di, first + s), limits));
        for (int list = 0; list < n_lists; ++list) {
          const int h = list * heads_per_list;
          VF weight =
              ReduceHeads(take_max, heads_per_list, scratch.scores + (s * group + h) * kLanes,
                          scratch.max + h * kLanes, scratch.inverse + h * kLanes);
          weight = hn::IfThenElseZero(visible, weight);
          const int64_t at = list * list_floats + (first + s) * kLanes;
          if (scratch.sums != nullptr) {
            float* sums = scratch.sums + at;
            hn::StoreU(hn::Add(hn::LoadU(df, sums), weight), df, sums);
          }
          if (scratch.squares != nullptr) {
            float* sums = scratch.squares + at;
            hn::StoreU(hn::MulAdd(weight, weight, hn::LoadU(df, sums)), df, sums);
          }
          if (scratch.largest != nullptr) {
            float* largest = scratch.largest + at;
            hn::StoreU(hn::Max(hn::LoadU(df, largest), weight), df, largest);
          }
          if (!in_rows) continue;
          alignas(64) float weights[kLanes];
          hn::Store(weight, df, weights);
          float* rows = job.found->last_rows[static_cast<size_t>(job.first_list + list)].data();
          for (int lane = 0; lane < n_queries; ++lane) {
            const int64_t row = query + lane - job.first_row_query;
            if (row >= 0) rows[row * job.n_entries + job.first_slot + first + s] = weights[lane];
          }
        }
      }
    }
    if (++n_blocks % kBlocksPerFlush == 0) flush();
  }
  flush();
  if (scratch.largest != nullptr) {
    StoreMaxima(n_lists, job.first_list, job.first_slot, job.n_slots, scratch.largest,
                job.found->column_max);
  }
}

int64_t TapFloats(const AttentionShape& shape, const TapSpec& taps) {
  return (TapScratch(shape, taps, nullptr).n_floats + 15) / 16 * 16;
}

const TapKernels& TapTable() {
  static constexpr TapKernels kTable = {.tap_slots = TapSlots, .scratch_floats = TapFloats};
  return kTable;
}

}  // namespace winnow::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace winnow::kernels::cpu {

HWY_EXPORT(TapTable);

const TapKernels& TapKernelsFor(int64_t target) {
  return ForTarget(HWY_DISPATCH_TABLE(TapTable), target)();
}

}  // namespace winnow::kernels::cpu
#endif
