#include "kernels/cpu/similarity.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "kernels/cpu/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/similarity.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/entries-inl.h"
#include "kernels/cpu/lane_sums-inl.h"
#include "kernels/cpu/pack-inl.h"
#include "kernels/cpu/passes-inl.h"
#include "kernels/cpu/unpack-inl.h"

HWY_BEFORE_NAMESPACE();
namespace winnow::kernels::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using VI = hn::Vec<DI>;

// --- many rows ---
// Rows of `to` are the lanes of all vectors here, so that a row of `from` compares them without
// looking across lanes until the very end.

// Rows of `to` that are packed together, and rows of `from` that one job takes: both, with the best
// so far, fit a first-level cache.
constexpr int kTileRows = 64;
constexpr int kFromRows = 48;
// Tiles of accumulators: rows of `from` times vectors of rows of `to`.
constexpr int kPanel = 6;
constexpr int kVectors = kLanes == 16 ? 4 : 2;

// Rows as unit vectors; a row of zeros stays one.
void UnpackUnit(const HostHeadRows& head, std::span<const int32_t> rows, float* out) {
  const DF df;
  const auto n = static_cast<int>(rows.size());
  UnpackEntries({head.type, head.row_bytes, head.dim}, head.data, rows.data(), 0, n, out);
  for (int row = 0; row < n; ++row) {
    float* x = out + row * head.dim;
    VF squares = hn::Zero(df);
    int i = 0;
    for (; i + kLanes <= head.dim; i += kLanes) {
      const VF v = hn::LoadU(df, x + i);
      squares = hn::MulAdd(v, v, squares);
    }
    float sum = hn::GetLane(hn::SumOfLanes(df, squares));
    for (; i < head.dim; ++i) sum += x[i] * x[i];
    const float inverse = sum > 0 ? 1 / std::sqrt(sum) : 0;
    const VF scale = hn::Set(df, inverse);
    for (i = 0; i + kLanes <= head.dim; i += kLanes) {
      hn::StoreU(hn::Mul(hn::LoadU(df, x + i), scale), df, x + i);
    }
    for (; i < head.dim; ++i) x[i] *= inverse;
  }
}

// kTileRows rows of `to` from `first` on, [dim, kTileRows]. Places behind the last row repeat it;
// they lose to it, because of equal ones the first wins.
void PackTile(const HostHeadRows& head, std::span<const int32_t> to, int64_t first, float* scratch,
              float* packed) {
  const auto n = std::min<int64_t>(kTileRows, static_cast<int64_t>(to.size()) - first);
  UnpackUnit(head, to.subspan(static_cast<size_t>(first), static_cast<size_t>(n)), scratch);
  for (int lane = 0; lane < kTileRows; lane += kLanes) {
    alignas(64) int32_t offsets[kLanes];
    for (int i = 0; i < kLanes; ++i) {
      offsets[i] = static_cast<int32_t>(std::min<int64_t>(lane + i, n - 1)) * head.dim;
    }
    PackRows({scratch, offsets}, head.dim, 1.0f, packed + lane, kTileRows);
  }
}

// products[r][c] = from row r . to rows of vector c.
template <int kRows>
HWY_INLINE void Products(const float* from, const float* to, int dim,
                         VF (&products)[kRows][kVectors]) {
  const DF df;
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
#pragma GCC unroll 4
    for (int c = 0; c < kVectors; ++c) products[r][c] = hn::Zero(df);
  }
  for (int i = 0; i < dim; ++i) {
    VF x[kVectors];
#pragma GCC unroll 4
    for (int c = 0; c < kVectors; ++c) x[c] = hn::LoadU(df, to + i * kTileRows + c * kLanes);
#pragma GCC unroll 8
    for (int r = 0; r < kRows; ++r) {
      const VF y = hn::Set(df, from[r * dim + i]);
#pragma GCC unroll 4
      for (int c = 0; c < kVectors; ++c) products[r][c] = hn::MulAdd(y, x[c], products[r][c]);
    }
  }
}

// The best so far of some rows, each lane on its own.
struct Best {
  float* cosines;    // [row, kLanes]
  int32_t* vectors;  // [row, kLanes]: counted from the first of all tiles

  Best From(int row) const { return {cosines + row * kLanes, vectors + row * kLanes}; }
};

// One kind of rows: some of `from` [row, dim], a tile of `to` [dim, kTileRows].
struct Operands {
  const float* from;
  const float* to;
  int dim;
};

// Compares kRows rows with kVectors vectors, of which the first is number `vector`.
template <int kRows>
void MatchPanel(std::span<const Operands> kinds, int vector, const Best& best) {
  const DF df;
  const DI di;
  VF cosines[kRows][kVectors];
  Products<kRows>(kinds[0].from, kinds[0].to, kinds[0].dim, cosines);
  if (kinds.size() > 1) {
    alignas(64) float first[kRows * kVectors * kLanes];
    for (int i = 0; i < kRows * kVectors; ++i) {
      hn::Store(cosines[i / kVectors][i % kVectors], df, first + i * kLanes);
    }
    Products<kRows>(kinds[1].from, kinds[1].to, kinds[1].dim, cosines);
    for (int i = 0; i < kRows * kVectors; ++i) {
      VF& cosine = cosines[i / kVectors][i % kVectors];
      cosine = hn::Mul(cosine, hn::Load(df, first + i * kLanes));
    }
  }
#pragma GCC unroll 8
  for (int r = 0; r < kRows; ++r) {
    VF highest = hn::LoadU(df, best.cosines + r * kLanes);
    VI where = hn::LoadU(di, best.vectors + r * kLanes);
#pragma GCC unroll 4
    for (int c = 0; c < kVectors; ++c) {
      const auto higher = hn::Gt(cosines[r][c], highest);
      highest = hn::IfThenElse(higher, cosines[r][c], highest);
      where = hn::IfThenElse(hn::RebindMask(di, higher), hn::Set(di, vector + c), where);
    }
    hn::StoreU(highest, df, best.cosines + r * kLanes);
    hn::StoreU(where, di, best.vectors + r * kLanes);
  }
}

// The best of `to` for n_rows rows of `from` from `first` on.
void MatchBlock(const HostSimilarity& s, int64_t first, int n_rows, const float* packed,
                float* from) {
  alignas(64) float cosines[kFromRows * kLanes];
  alignas(64) int32_t vectors[kFromRows * kLanes] = {};
  std::fill(cosines, cosines + kFromRows * kLanes, -std::numeric_limits<float>::infinity());
  const Best best = {cosines, vectors};
  const auto rows = s.from.subspan(static_cast<size_t>(first), static_cast<size_t>(n_rows));
  int64_t tile_floats = 0;
  float* of_kind = from;
  for (const HostHeadRows& kind : s.kinds) {
    UnpackUnit(kind, rows, of_kind);
    of_kind += kFromRows * kind.dim;
    tile_floats += int64_t{kTileRows} * kind.dim;
  }
  const auto n_to = static_cast<int64_t>(s.to.size());
  const size_t n_kinds = s.kinds.size();
  for (int64_t tile = 0; tile * kTileRows < n_to; ++tile) {
    for (int lane = 0; lane < kTileRows; lane += kVectors * kLanes) {
      const auto vector = static_cast<int>((tile * kTileRows + lane) / kLanes);
      const auto operands = [&](int row) {
        std::array<Operands, 2> at;
        const float* rows_of_kind = from;
        const float* to_of_kind = packed + tile * tile_floats + lane;
        for (size_t kind = 0; kind < n_kinds; ++kind) {
          const int dim = s.kinds[kind].dim;
          at[kind] = {rows_of_kind + row * dim, to_of_kind, dim};
          rows_of_kind += kFromRows * dim;
          to_of_kind += kTileRows * dim;
        }
        return at;
      };
      int row = 0;
      for (; row + kPanel <= n_rows; row += kPanel) {
        const auto kinds = operands(row);
        MatchPanel<kPanel>(std::span(kinds).first(n_kinds), vector, best.From(row));
      }
      for (; row < n_rows; ++row) {
        const auto kinds = operands(row);
        MatchPanel<1>(std::span(kinds).first(n_kinds), vector, best.From(row));
      }
    }
  }
  for (int row = 0; row < n_rows; ++row) {
    const Best of_row = best.From(row);
    float highest = -std::numeric_limits<float>::infinity();
    int32_t where = 0;
    for (int lane = 0; lane < kLanes; ++lane) {
      const int32_t index = of_row.vectors[lane] * kLanes + lane;
      const float cosine = of_row.cosines[lane];
      if (cosine > highest || (cosine == highest && index < where)) {
        highest = cosine;
        where = index;
      }
    }
    s.best[static_cast<size_t>(first + row)] = highest;
    s.best_to[static_cast<size_t>(first + row)] = where;
  }
}

void MatchMany(const HostSimilarity& s, std::vector<float>& scratch, ThreadPool& pool) {
  int64_t dims = 0;
  for (const HostHeadRows& kind : s.kinds) dims += kind.dim;
  const int64_t n_tiles = (static_cast<int64_t>(s.to.size()) + kTileRows - 1) / kTileRows;
  const int64_t tile_floats = kTileRows * dims;
  // All tiles; then, per thread, rows before they are packed or a block of rows.
  const int64_t thread_floats = kTileRows * dims;
  const int64_t n_floats = n_tiles * tile_floats + pool.n_threads() * thread_floats;
  if (scratch.size() < static_cast<size_t>(n_floats)) scratch.resize(static_cast<size_t>(n_floats));
  float* packed = scratch.data();
  float* threads = packed + n_tiles * tile_floats;
  pool.ParallelFor(n_tiles, [&](int64_t tile, int thread) {
    float* to = packed + tile * tile_floats;
    for (const HostHeadRows& kind : s.kinds) {
      PackTile(kind, s.to, tile * kTileRows, threads + thread * thread_floats, to);
      to += int64_t{kTileRows} * kind.dim;
    }
  });
  const auto n_from = static_cast<int64_t>(s.from.size());
  pool.ParallelFor((n_from + kFromRows - 1) / kFromRows, [&](int64_t block, int thread) {
    const int64_t first = block * kFromRows;
    const auto n = static_cast<int>(std::min<int64_t>(kFromRows, n_from - first));
    MatchBlock(s, first, n, packed, threads + thread * thread_floats);
  });
}

// --- few rows ---
// A decode step has one row that looks for its nearest: to pack all others would cost more than to
// compare them.

constexpr int64_t kFewRows = 2;
// Rows lie where evictions left them: no prefetcher sees the next one coming.
constexpr size_t kRowsAhead = 8;

// out[i] (multiplied: times) the cosine of `from`, a unit vector, and row to[i]. Requires: dim is a
// multiple of kLanes.
template <class At>
void Cosines(const HostHeadRows& head, std::span<const int32_t> to, const float* from,
             bool multiplied, float* out) {
  const DF df;
  const size_t last = to.size() - 1;
  for (size_t first = 0; first < to.size(); first += kLanes) {
    VF dots[kLanes / 4], squares[kLanes / 4];
#pragma GCC unroll 4
    for (size_t four = 0; four < kLanes / 4; ++four) {
      VF dot[4], square[4];
#pragma GCC unroll 4
      for (size_t i = 0; i < 4; ++i) {
        const size_t row = first + 4 * four + i;
        PrefetchRows(head.Row(to[std::min(row + kRowsAhead, last)]), head.row_bytes);
        const At at{head.Row(to[std::min(row, last)])};
        dot[i] = square[i] = hn::Zero(df);
        for (int d = 0; d < head.dim; d += kLanes) {
          const VF x = at(d);
          dot[i] = hn::MulAdd(x, hn::LoadU(df, from + d), dot[i]);
          square[i] = hn::MulAdd(x, x, square[i]);
        }
      }
      dots[four] = SumFour(dot[0], dot[1], dot[2], dot[3]);
      squares[four] = SumFour(square[0], square[1], square[2], square[3]);
    }
    const VF square = SumBlocks(squares);
    const VF cosine = hn::IfThenElseZero(hn::Gt(square, hn::Zero(df)),
                                         hn::Div(SumBlocks(dots), hn::Sqrt(square)));
    alignas(64) float of_rows[kLanes];
    hn::Store(cosine, df, of_rows);
    for (size_t i = 0; i < std::min<size_t>(kLanes, to.size() - first); ++i) {
      out[first + i] = multiplied ? out[first + i] * of_rows[i] : of_rows[i];
    }
  }
}

void CosinesOfAnyRows(const HostHeadRows& head, std::span<const int32_t> to, const float* from,
                      bool multiplied, float* unpacked, float* out) {
  if (head.dim % kLanes == 0) {
    switch (head.type) {
      case TensorType::kF32:
        return Cosines<ElementsAt<F32Elements>>(head, to, from, multiplied, out);
      case TensorType::kF16:
        return Cosines<ElementsAt<F16Elements>>(head, to, from, multiplied, out);
      case TensorType::kBF16:
        return Cosines<ElementsAt<Bf16Elements>>(head, to, from, multiplied, out);
      case TensorType::kQ8_0:
        return Cosines<BlocksAt<Q8Block>>(head, to, from, multiplied, out);
      default:
        return Cosines<BlocksAt<Q4Block>>(head, to, from, multiplied, out);
    }
  }
  UnpackUnit(head, to, unpacked);
  for (size_t i = 0; i < to.size(); ++i, unpacked += head.dim) {
    float cosine = 0;
    for (int d = 0; d < head.dim; ++d) cosine += unpacked[d] * from[d];
    out[i] = multiplied ? out[i] * cosine : cosine;
  }
}

void MatchFew(const HostSimilarity& s, std::vector<float>& scratch, ThreadPool& pool) {
  int64_t dims = 0;
  int most_dim = 0;
  for (const HostHeadRows& kind : s.kinds) {
    dims += kind.dim;
    most_dim = std::max(most_dim, kind.dim);
  }
  const auto n_from = static_cast<int64_t>(s.from.size());
  const auto n_to = static_cast<int64_t>(s.to.size());
  const int64_t thread_floats = int64_t{kTileRows} * most_dim;
  // Rows of `from` [row, kind, dim]; cosines [row, n_to]; working memory per thread.
  const int64_t n_floats = n_from * (dims + n_to) + pool.n_threads() * thread_floats;
  if (scratch.size() < static_cast<size_t>(n_floats)) scratch.resize(static_cast<size_t>(n_floats));
  float* from = scratch.data();
  float* cosines = from + n_from * dims;
  float* threads = cosines + n_from * n_to;
  for (int64_t row = 0; row < n_from; ++row) {
    float* out = from + row * dims;
    for (const HostHeadRows& kind : s.kinds) {
      UnpackUnit(kind, s.from.subspan(static_cast<size_t>(row), 1), out);
      out += kind.dim;
    }
  }
  pool.ParallelFor((n_to + kTileRows - 1) / kTileRows, [&](int64_t tile, int thread) {
    const int64_t first = tile * kTileRows;
    const int64_t n = std::min<int64_t>(kTileRows, n_to - first);
    const auto to = s.to.subspan(static_cast<size_t>(first), static_cast<size_t>(n));
    for (int64_t row = 0; row < n_from; ++row) {
      const float* of_kind = from + row * dims;
      for (size_t kind = 0; kind < s.kinds.size(); ++kind) {
        CosinesOfAnyRows(s.kinds[kind], to, of_kind, kind > 0, threads + thread * thread_floats,
                         cosines + row * n_to + first);
        of_kind += s.kinds[kind].dim;
      }
    }
  });
  for (int64_t row = 0; row < n_from; ++row) {
    const float* of_row = cosines + row * n_to;
    const float* highest = std::max_element(of_row, of_row + n_to);  // the first of equals
    s.best[static_cast<size_t>(row)] = *highest;
    s.best_to[static_cast<size_t>(row)] = static_cast<int32_t>(highest - of_row);
  }
}

void MostSimilar(const HostSimilarity& s, std::vector<float>& scratch, ThreadPool& pool) {
  if (static_cast<int64_t>(s.from.size()) <= kFewRows) return MatchFew(s, scratch, pool);
  MatchMany(s, scratch, pool);
}

}  // namespace winnow::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace winnow::kernels::cpu {

HWY_EXPORT(MostSimilar);

void MostSimilar(const HostSimilarity& s, int64_t target, std::vector<float>& scratch,
                 ThreadPool& pool) {
  WINNOW_CHECK(!s.to.empty() && !s.kinds.empty() && s.kinds.size() <= 2);
  WINNOW_CHECK(s.best.size() == s.from.size() && s.best_to.size() == s.from.size());
  for (const HostHeadRows& kind : s.kinds) {
    for (const std::span<const int32_t> rows : {s.from, s.to}) {
      for (const int32_t row : rows) WINNOW_CHECK(row >= 0 && row < kind.n_rows);
    }
  }
  ForTarget(HWY_DISPATCH_TABLE(MostSimilar), target)(s, scratch, pool);
}

}  // namespace winnow::kernels::cpu
#endif
