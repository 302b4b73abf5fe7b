// Column sums (or maxima) of the weights of a block of rows. Per-target include guard:
#if defined(WINNOW_KERNELS_CPU_BLOCK_SUMS_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef WINNOW_KERNELS_CPU_BLOCK_SUMS_INL_H_
#undef WINNOW_KERNELS_CPU_BLOCK_SUMS_INL_H_
#else
#define WINNOW_KERNELS_CPU_BLOCK_SUMS_INL_H_
#endif

#include <hwy/highway.h>

#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "kernels/cpu/attention/attention_kernels.h"
#include "kernels/cpu/simd/exp-inl.h"
#include "kernels/cpu/simd/lane_sums-inl.h"

HWY_BEFORE_NAMESPACE();
namespace winnow::kernels::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// A block's weights, tile by tile, and the row maxima that each tile's weights are relative to.
class KeptWeights {
 public:
  KeptWeights(float* from, int64_t n_slots) : weights_(from), n_tiles_(KeptTiles(n_slots)) {}

  float* Weights(int64_t slot) const { return weights_ + slot * kBlockRows; }
  // [kBlockRows], for the tile that starts at `slot`.
  float* Max(int64_t slot) const {
    return weights_ + (n_tiles_ * kTileSlots + slot / kTileSlots) * kBlockRows;
  }

 private:
  float* weights_;
  int64_t n_tiles_;
};

// Lists summed in one pass: their sums and factors stay in registers.
constexpr int kListsTogether = kLanes == 16 ? 4 : 2;

// Zeroes the weights of a tile's slots [first, n_slots), which n_lanes rows do not see.
inline void ClearUnseen(int first, int n_slots, int n_lanes, float* weights) {
  for (int s = first; s < n_slots; ++s) std::fill_n(weights + s * kBlockRows, n_lanes, 0.0f);
}

// sums[list][slot]: sums over rows of a tile's weights [kTileSlots, kBlockRows] times factors, or
// their maxima.
//   factors [list, kBlockRows], sums [list, kTileSlots]; n_lanes rows, a multiple of kLanes
template <class Join, int kLists>
void JoinTile(const float* weights, const float* factors, int n_lanes, int n_slots, float* sums) {
  const DF df;
  for (int first = 0; first < n_slots; first += kLanes) {
    VF fours[kLists][kLanes / 4];
    for (int four = 0; four < kLanes / 4; ++four) {
      const float* from = weights + (first + 4 * four) * kBlockRows;
      VF acc[4][kLists];
#pragma GCC unroll 4
      for (int s = 0; s < 4; ++s) {
#pragma GCC unroll 4
        for (int list = 0; list < kLists; ++list) acc[s][list] = hn::Zero(df);
      }
      for (int r = 0; r < n_lanes; r += kLanes) {
        VF factor[kLists];
#pragma GCC unroll 4
        for (int list = 0; list < kLists; ++list) {
          factor[list] = hn::LoadU(df, factors + list * kBlockRows + r);
        }
#pragma GCC unroll 4
        for (int s = 0; s < 4; ++s) {
          const VF weight = hn::LoadU(df, from + s * kBlockRows + r);
#pragma GCC unroll 4
          for (int list = 0; list < kLists; ++list) {
            if constexpr (std::is_same_v<Join, Add>) {
              acc[s][list] = hn::MulAdd(weight, factor[list], acc[s][list]);
            } else {
              acc[s][list] = Join()(hn::Mul(weight, factor[list]), acc[s][list]);
            }
          }
        }
      }
#pragma GCC unroll 4
      for (int list = 0; list < kLists; ++list) {
        fours[list][four] = JoinFour<Join>(acc[0][list], acc[1][list], acc[2][list], acc[3][list]);
      }
    }
#pragma GCC unroll 4
    for (int list = 0; list < kLists; ++list) {
      hn::StoreU(JoinBlocks<Join>(fours[list]), df, sums + list * kTileSlots + first);
    }
  }
}

template <class Join>
void JoinTileOfLists(int n_lists, const float* weights, const float* factors, int n_lanes,
                     int n_slots, float* sums) {
  switch (n_lists) {
    case 1:
      return JoinTile<Join, 1>(weights, factors, n_lanes, n_slots, sums);
    case 2:
      return JoinTile<Join, 2>(weights, factors, n_lanes, n_slots, sums);
#if HWY_MAX_BYTES == 64
    case 3:
      return JoinTile<Join, 3>(weights, factors, n_lanes, n_slots, sums);
    default:
      return JoinTile<Join, 4>(weights, factors, n_lanes, n_slots, sums);
#endif
  }
}

// Column sums of a block, or column maxima, from the final maxima and sums of its rows.
inline void SumColumns(const AttentionShape& shape, const BlockJob& job, const KeptWeights& kept,
                       const float* max, const float* sum) {
  const DF df;
  const BlockSums& columns = job.columns;
  const int n_lanes = (job.n_rows + kLanes - 1) / kLanes * kLanes;
  alignas(64) float shares[kBlockRows * kListsTogether];   // factor of each row in each list
  alignas(64) float factors[kBlockRows * kListsTogether];  // of each row in the current tile
  alignas(64) float sums[kTileSlots * kListsTogether];
  for (int first_list = 0; first_list < columns.n_lists; first_list += kListsTogether) {
    const int n_lists = std::min(kListsTogether, columns.n_lists - first_list);
    for (int list = 0; list < n_lists; ++list) {
      for (int r = 0; r < n_lanes; ++r) {
        const bool counts =
            r < job.n_rows &&
            (columns.n_lists == 1 || (job.first_row + r) % shape.group == first_list + list);
        shares[list * kBlockRows + r] = counts ? columns.share / sum[r] : 0;
      }
    }
    for (int64_t slot = 0; slot < job.end_slot; slot += kTileSlots) {
      const auto n = static_cast<int>(std::min<int64_t>(kTileSlots, job.end_slot - slot));
      for (int r = 0; r < n_lanes; r += kLanes) {
        const VF later =
            Exp2OfNegative(df, hn::Sub(hn::LoadU(df, kept.Max(slot) + r), hn::LoadU(df, max + r)));
        for (int list = 0; list < n_lists; ++list) {
          const int at = list * kBlockRows + r;
          hn::Store(hn::Mul(later, hn::Load(df, shares + at)), df, factors + at);
        }
      }
      const auto join = columns.largest ? JoinTileOfLists<Max> : JoinTileOfLists<Add>;
      join(n_lists, kept.Weights(slot), factors, n_lanes, n, sums);
      for (int list = 0; list < n_lists; ++list) {
        std::copy_n(sums + list * kTileSlots, n,
                    columns.sums + (first_list + list) * job.end_slot + slot);
      }
    }
  }
}

}  // namespace winnow::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
