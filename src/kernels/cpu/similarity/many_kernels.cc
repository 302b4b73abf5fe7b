#define WINNOW_FLOAT_KERNELS  // see simd/targets.h
#include "kernels/cpu/similarity/similarity_kernels.h"

#include <algorithm>
#include <array>

#include "kernels/cpu/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/similarity/many_kernels.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/attention/query_tiles-inl.h"
#include "kernels/cpu/simd/pack-inl.h"
#include "kernels/cpu/similarity/similarity-inl.h"

HWY_BEFORE_NAMESPACE();
namespace winnow::kernels::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Every lane of a vector is a row of `to`, so that comparing a row of `from` needs no operation
// across lanes until the very end.

// Rows of `from` per work item: with a tile of `to` and the best matches so far they fit L1.
constexpr int kFromRows = 48;

// Packs kTileRows rows of `to`, starting at `first`, as [dim, kTileRows]. Lanes past the last row
// repeat it; they never win, because ties go to the first.
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

// The best matches of some rows so far, per lane.
struct Best {
  float* cosines;    // [row, kLanes]
  int32_t* vectors;  // [row, kLanes]: number of the vector, counted over all tiles

  Best From(int row) const { return {cosines + row * kLanes, vectors + row * kLanes}; }
};

// One kind of rows (keys or values): rows of `from` [row, dim], a tile of `to` [dim, kTileRows].
struct Operands {
  const float* from;
  const float* to;
  int dim;
};

// Compares kRows rows with kVectors vectors; the first has number `vector`.
template <int kRows>
void MatchPanel(std::span<const Operands> kinds, int vector, const Best& best) {
  const DF df;
  const DI di;
  VF cosines[kRows][kVectors];
  Products(kinds[0].from, kinds[0].dim, kinds[0].to, kTileRows, cosines);
  if (kinds.size() > 1) {
    alignas(64) float first[kRows * kVectors * kLanes];
    for (int i = 0; i < kRows * kVectors; ++i) {
      hn::Store(cosines[i / kVectors][i % kVectors], df, first + i * kLanes);
    }
    Products(kinds[1].from, kinds[1].dim, kinds[1].to, kTileRows, cosines);
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

// Finds the best row of `to` for n_rows rows of `from`, starting at `first`. `packed`: the tiles of
// `to`; `from`: working memory for the block of rows.
void MatchBlock(const HostSimilarity& s, int64_t first, int n_rows, const float* packed,
                float* from) {
  alignas(64) float cosines[kFromRows * kLanes];
  alignas(64) int32_t vectors[kFromRows * kLanes] = {};
  std::fill(cosines, cosines + kFromRows * kLanes, -std::numeric_limits<float>::infinity());
  const Best best = {cosines, vectors};
  const auto rows = s.from.subspan(static_cast<size_t>(first), static_cast<size_t>(n_rows));
  int64_t tile_floats = 0;
  float* of_kind = from;
  for (const HostHeadRows& kind : s.kinds()) {
    UnpackUnit(kind, rows, of_kind);
    of_kind += kFromRows * kind.dim;
    tile_floats += int64_t{kTileRows} * kind.dim;
  }
  const auto n_to = static_cast<int64_t>(s.to.size());
  const std::span<const HostHeadRows> all_kinds = s.kinds();
  const size_t n_kinds = all_kinds.size();
  for (int64_t tile = 0; tile * kTileRows < n_to; ++tile) {
    for (int lane = 0; lane < kTileRows; lane += kVectors * kLanes) {
      const auto vector = static_cast<int>((tile * kTileRows + lane) / kLanes);
      const auto operands = [&](int row) {
        std::array<Operands, 2> at;
        const float* rows_of_kind = from;
        const float* to_of_kind = packed + tile * tile_floats + lane;
        for (size_t kind = 0; kind < n_kinds; ++kind) {
          const int dim = all_kinds[kind].dim;
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
    StoreBest(s, static_cast<size_t>(first + row), highest, where);
  }
}

void MatchManyRows(const HostSimilarity& s, std::vector<float>& scratch, ThreadPool& pool) {
  int64_t dims = 0;
  for (const HostHeadRows& kind : s.kinds()) dims += kind.dim;
  const int64_t n_tiles = Tiles(s);
  const int64_t tile_floats = kTileRows * dims;
  // All tiles; then, per thread, the rows of a tile before packing or a block of rows of `from`.
  const int64_t thread_floats = kTileRows * dims;
  const int64_t n_floats = n_tiles * tile_floats + pool.n_threads() * thread_floats;
  if (scratch.size() < static_cast<size_t>(n_floats)) scratch.resize(static_cast<size_t>(n_floats));
  float* packed = scratch.data();
  float* threads = packed + n_tiles * tile_floats;
  pool.ParallelFor(n_tiles, [&](int64_t tile, int thread) {
    float* to = packed + tile * tile_floats;
    for (const HostHeadRows& kind : s.kinds()) {
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

}  // namespace winnow::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace winnow::kernels::cpu {

HWY_EXPORT(MatchManyRows);

void MatchMany(const HostSimilarity& search, int64_t target, std::vector<float>& scratch,
               ThreadPool& pool) {
  ForTarget(HWY_DISPATCH_TABLE(MatchManyRows), target)(search, scratch, pool);
}

}  // namespace winnow::kernels::cpu
#endif
