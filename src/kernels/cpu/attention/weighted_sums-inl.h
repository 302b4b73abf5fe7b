// Weighted sums of rows of values. Per-target include guard:
#if defined(WINNOW_KERNELS_CPU_WEIGHTED_SUMS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef WINNOW_KERNELS_CPU_WEIGHTED_SUMS_INL_H_
#undef WINNOW_KERNELS_CPU_WEIGHTED_SUMS_INL_H_
#else
#define WINNOW_KERNELS_CPU_WEIGHTED_SUMS_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/cpu/attention/attention_kernels.h"
#include "kernels/cpu/attention/key_blocks-inl.h"
#include "kernels/cpu/attention/passes-inl.h"

HWY_BEFORE_NAMESPACE();
namespace winnow::kernels::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Slots [first, end) of a chunk, read as n_streams interleaved parts.
struct SlotRange {
  int first = 0;
  int end = 0;
  int n_streams = 1;
};

// acc[h * value_dim + ...] += sum over the slots of weight * value, for kVectors vectors of
// dimensions starting at `from`; Rows::Load(row, v) loads vector v of a row. If slots.first is 0,
// acc starts at 0 whatever it holds. `fetched`: region to prefetch ahead of every row; null: none.
template <class Rows, int kHeads, int kVectors>
void AccumulateVectors(const AttentionShape& shape, const std::byte* from, const SlotRange& slots,
                       const PrefetchPolicy::Part* fetched, const float* weights, float* acc) {
  const DF df;
  const PrefetchPolicy prefetch = shape.prefetch;
  VF sums[kHeads][kVectors];
#pragma GCC unroll 8
  for (int h = 0; h < kHeads; ++h) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      sums[h][v] =
          slots.first == 0 ? hn::Zero(df) : hn::LoadU(df, acc + h * shape.value_dim + v * kLanes);
    }
  }
  const auto add = [&](int s) HWY_ATTR {
    const int64_t at = s * shape.value_row_bytes;
    if (fetched != nullptr) prefetch.PrefetchAheadIn(*fetched, at, shape.value_row_bytes);
    const std::byte* row = from + at;
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      const VF value = Rows::Load(row, v);
#pragma GCC unroll 8
      for (int h = 0; h < kHeads; ++h) {
        sums[h][v] = hn::MulAdd(value, hn::Set(df, weights[h * kChunkSlots + s]), sums[h][v]);
      }
    }
  };
  int next = slots.first;
  if (slots.n_streams == kStreams) {
    const int part = StreamSlots(slots.end - slots.first, kStreams);
    for (int s = 0; s < part; ++s) {
#pragma GCC unroll 4
      for (int stream = 0; stream < kStreams; ++stream) add(slots.first + stream * part + s);
    }
    next += kStreams * part;
  }
  for (int s = next; s < slots.end; ++s) add(s);
#pragma GCC unroll 8
  for (int h = 0; h < kHeads; ++h) {
#pragma GCC unroll 8
    for (int v = 0; v < kVectors; ++v) {
      hn::StoreU(sums[h][v], df, acc + h * shape.value_dim + v * kLanes);
    }
  }
}

template <class Elements>
struct ElementRows {
  static HWY_INLINE VF Load(const std::byte* row, int v) {
    return Elements::Load(row + v * kLanes * Elements::kBytes);
  }
};

// The last dimensions, fewer than a vector. Covers all slots of the chunk.
template <class Elements>
void AccumulateRest(const AttentionShape& shape, const std::byte* from, int n_dims, int n_slots,
                    const float* weights, float* acc) {
  const DF df;
  VF sum = hn::Zero(df);
  for (int s = 0; s < n_slots; ++s) {
    const VF value = LoadFirst<Elements>(from + s * shape.value_row_bytes, n_dims);
    sum = hn::MulAdd(value, hn::Set(df, weights[s]), sum);
  }
  alignas(64) float all[kLanes];
  hn::Store(sum, df, all);
  std::copy(all, all + n_dims, acc);
}

template <class Elements, int kHeads>
void AccumulateHeads(const AttentionShape& shape, const ChunkJob& job, const SlotRange& slots,
                     const PrefetchPolicy::Part* fetched, const float* weights, float* acc) {
  int i = 0;
  for (; i + 4 * kLanes <= shape.value_dim; i += 4 * kLanes) {
    AccumulateVectors<ElementRows<Elements>, kHeads, 4>(shape, job.values + i * Elements::kBytes,
                                                        slots, i == 0 ? fetched : nullptr, weights,
                                                        acc + i);
  }
  for (; i + kLanes <= shape.value_dim; i += kLanes) {
    AccumulateVectors<ElementRows<Elements>, kHeads, 1>(shape, job.values + i * Elements::kBytes,
                                                        slots, i == 0 ? fetched : nullptr, weights,
                                                        acc + i);
  }
  if (i == shape.value_dim || slots.end < job.n_slots) return;
  for (int h = 0; h < kHeads; ++h) {
    AccumulateRest<Elements>(shape, job.values + i * Elements::kBytes, shape.value_dim - i,
                             job.n_slots, weights + h * kChunkSlots, acc + h * shape.value_dim + i);
  }
}

// Calls accumulate_slots(slots) for runs of a few slots, unless they are read as several streams.
// Every pass over a run but the first finds it in L1, and prefetching overlaps with all passes.
template <class F>
HWY_INLINE void ForSlotRuns(int n_slots, int n_streams, const F& accumulate_slots) {
  constexpr int kSlotsPerRun = 32;
  const int step = n_streams > 1 ? std::max(1, n_slots) : kSlotsPerRun;
  for (int first = 0; first < n_slots; first += step) {
    accumulate_slots(
        SlotRange{.first = first, .end = std::min(first + step, n_slots), .n_streams = n_streams});
  }
}

template <class Elements>
void Accumulate(const AttentionShape& shape, const ChunkJob& job, const float* weights) {
  const PrefetchPolicy::Part values = ValueRegion(shape, job);
  const auto accumulate_slots = [&](const SlotRange& slots) HWY_ATTR {
    ForPasses(shape.group, [&](int h, auto count) HWY_ATTR {
      AccumulateHeads<Elements, decltype(count)::kHeads>(
          shape, job, slots, h == 0 ? &values : nullptr, weights + h * kChunkSlots,
          job.partial.acc + h * shape.value_dim);
    });
  };
  const int n_streams = shape.prefetch.streams;
  const bool one_pass = shape.group <= kHeadsPerPass && shape.value_dim <= 4 * kLanes;
  if (one_pass) return accumulate_slots({.first = 0, .end = job.n_slots, .n_streams = n_streams});
  ForSlotRuns(job.n_slots, n_streams, accumulate_slots);
}

// One block of 32 dimensions; the weights include the block's scales.
constexpr int kBlockVectors = 32 / kLanes;
constexpr int kHeadsPerBlockPass = kLanes == 16 ? 8 : (kLanes == 8 ? 3 : 1);

template <class Block>
struct BlockRows {
  static HWY_INLINE VF Load(const std::byte* block, int v) { return Block::Load(block, v); }
};

template <class Block, int kHeads = 1>
HWY_INLINE void AccumulateBlockOfHeads(int heads, const AttentionShape& shape,
                                       const std::byte* from, const SlotRange& slots,
                                       const float* weights, float* acc) {
  if (heads == kHeads) {
    AccumulateVectors<BlockRows<Block>, kHeads, kBlockVectors>(shape, from, slots, nullptr, weights,
                                                               acc);
  } else if constexpr (kHeads < kHeadsPerBlockPass) {
    AccumulateBlockOfHeads<Block, kHeads + 1>(heads, shape, from, slots, weights, acc);
  }
}

// `scaled` has room for [group, kChunkSlots].
template <class Block>
void AccumulateBlocks(const AttentionShape& shape, const ChunkJob& job, const float* weights,
                      float* scaled) {
  const DF df;
  const PrefetchPolicy::Part values = ValueRegion(shape, job);
  const auto accumulate_slots = [&](const SlotRange& slots) HWY_ATTR {
    const int n_slots = slots.end - slots.first;
    for (int dim = 0; dim < shape.value_dim; dim += 32) {
      const std::byte* blocks = job.values + dim / 32 * Block::kBytes;
      const auto scale = [&](int s, VF scales) HWY_ATTR {
        for (int h = 0; h < shape.group; ++h) {
          const VF weight = hn::LoadU(df, weights + h * kChunkSlots + s);
          hn::StoreU(hn::Mul(weight, scales), df, scaled + h * kChunkSlots + s);
        }
      };
      ForTiles(n_slots, slots.n_streams, [&](int tile) HWY_ATTR {
        const int s = slots.first + tile;
        const int64_t at = s * shape.value_row_bytes;
        if (dim == 0) {
          shape.prefetch.PrefetchAheadIn(values, at, kLanes * shape.value_row_bytes);
        }
        scale(s, LoadScales(blocks + at, shape.value_row_bytes));
      });
      if (const int s = slots.first + n_slots / kLanes * kLanes; s < slots.end) {
        alignas(64) float rest[kLanes] = {};
        for (int i = 0; s + i < slots.end; ++i) {
          rest[i] = hn::GetLane(LoadScale(blocks + (s + i) * shape.value_row_bytes));
        }
        scale(s, hn::Load(df, rest));
      }
      for (int h = 0; h < shape.group; h += kHeadsPerBlockPass) {
        AccumulateBlockOfHeads<Block>(std::min(kHeadsPerBlockPass, shape.group - h), shape, blocks,
                                      slots, scaled + h * kChunkSlots,
                                      job.partial.acc + h * shape.value_dim + dim);
      }
    }
  };
  ForSlotRuns(job.n_slots, shape.prefetch.streams, accumulate_slots);
}

}  // namespace winnow::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
