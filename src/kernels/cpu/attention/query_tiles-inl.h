// Packed queries, with one row (query and head) per lane, and their products with keys. Per-target
// include guard:
#if defined(WINNOW_KERNELS_CPU_QUERY_TILES_INL_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef WINNOW_KERNELS_CPU_QUERY_TILES_INL_H_
#undef WINNOW_KERNELS_CPU_QUERY_TILES_INL_H_
#else
#define WINNOW_KERNELS_CPU_QUERY_TILES_INL_H_
#endif

#include <hwy/highway.h>

#include <cstdint>

#include "kernels/cpu/attention/attention_kernels.h"
#include "kernels/cpu/simd/pack-inl.h"

HWY_BEFORE_NAMESPACE();
namespace winnow::kernels::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using VI = hn::Vec<DI>;

// Tile of accumulators: kPanel slots (or dimensions of values) times up to kVectors vectors of
// rows.
constexpr int kPanel = 6;
constexpr int kVectors = kLanes == 16 ? 4 : 2;

// --- packing ---

// Rotates packed queries. `angles`: each query's row of the table.
inline void RotatePacked(const Rotation& rotation, const LaneRows& angles, float* packed,
                         int64_t stride) {
  const DF df;
  const int n_pairs = rotation.n_rotated / 2;
  for (int pair = 0; pair < n_pairs; ++pair) {
    float* to_a = packed + (rotation.interleaved ? 2 * pair : pair) * stride;
    float* to_b = packed + (rotation.interleaved ? 2 * pair + 1 : pair + n_pairs) * stride;
    const VF c = angles.Load(pair);
    const VF s = angles.Load(n_pairs + pair);
    const VF a = hn::LoadU(df, to_a);
    const VF b = hn::LoadU(df, to_b);
    hn::StoreU(hn::NegMulAdd(b, s, hn::Mul(a, c)), df, to_a);
    hn::StoreU(hn::MulAdd(a, s, hn::Mul(b, c)), df, to_b);
  }
}

// Packs kLanes queries as [key_dim, stride], scaled and rotated. `angles`: each query's row of the
// table, if there is a rotation.
inline void PackQueries(const AttentionShape& shape, const LaneRows& queries,
                        const LaneRows& angles, float* out, int64_t stride) {
  PackRows(queries, shape.key_dim, shape.scale, out, stride);
  if (shape.rotation.any()) RotatePacked(shape.rotation, angles, out, stride);
}

// --- products ---

// products[r][c] = row r . the rows of vector c.
//   rows [row, dim]; lanes [dim, stride]: vector c starts at column c * kLanes
template <int kRows, int kColumns>
HWY_INLINE void Products(const float* rows, int dim, const float* lanes, int64_t stride,
                         VF (&products)[kRows][kColumns]) {
  const DF df;
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int c = 0; c < kColumns; ++c) products[r][c] = hn::Zero(df);
  }
  for (int i = 0; i < dim; ++i) {
    VF x[kColumns];
#pragma GCC unroll 4
    for (int c = 0; c < kColumns; ++c) x[c] = hn::LoadU(df, lanes + i * stride + c * kLanes);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const VF y = hn::Set(df, rows[r * dim + i]);
#pragma GCC unroll 4
      for (int c = 0; c < kColumns; ++c) products[r][c] = hn::MulAdd(y, x[c], products[r][c]);
    }
  }
}

// scores[s * stride + row] = key s . query row, for kRows slots and kColumns vectors of rows.
//   keys [slot, dim], queries [dim, stride]
template <int kRows, int kColumns>
void ScorePanel(const float* keys, int dim, const float* queries, int64_t stride, float* scores) {
  VF products[kRows][kColumns];
  Products(keys, dim, queries, stride, products);
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int c = 0; c < kColumns; ++c) {
      hn::StoreU(products[r][c], DF(), scores + r * stride + c * kLanes);
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

}  // namespace winnow::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#endif  // per-target include guard
