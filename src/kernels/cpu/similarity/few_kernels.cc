#define WINNOW_FLOAT_KERNELS  // see simd/targets.h
#include "kernels/cpu/similarity/similarity_kernels.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "kernels/cpu/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/similarity/few_kernels.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/attention/attention_kernels.h"
#include "kernels/cpu/attention/passes-inl.h"
#include "kernels/cpu/simd/lane_sums-inl.h"
#include "kernels/cpu/simd/unpack-inl.h"
#include "kernels/cpu/similarity/similarity-inl.h"

HWY_BEFORE_NAMESPACE();
namespace winnow::kernels::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// A search with few rows, as in a decode step, compares stored rows directly: packing all rows of
// `to` would cost more than comparing them.

// Rows of `to` may have gaps, which hardware prefetchers do not cross.
constexpr size_t kRowsAhead = 8;

// out[i] = the cosine of `from`, a unit vector, and row to[i]. kVectors: vectors per row, which
// keeps `from` in registers; 0: any number. Requires: dim is a multiple of kLanes.
template <class At, int kVectors>
void RowCosinesTo(const HostHeadRows& head, std::span<const int32_t> to, const float* from,
                  float* out) {
  const DF df;
  const size_t last = to.size() - 1;
  constexpr PrefetchPolicy listed;  // row by row
  VF own[std::max(1, kVectors)];
#pragma GCC unroll 8
  for (int v = 0; v < kVectors; ++v) own[v] = hn::LoadU(df, from + v * kLanes);
  for (size_t first = 0; first < to.size(); first += kLanes) {
    VF dots[kLanes / 4], squares[kLanes / 4];
#pragma GCC unroll 4
    for (size_t four = 0; four < kLanes / 4; ++four) {
      VF dot[4], square[4];
#pragma GCC unroll 4
      for (size_t i = 0; i < 4; ++i) {
        const size_t row = first + 4 * four + i;
        listed.Fetch(head.Row(to[std::min(row + kRowsAhead, last)]), head.row_bytes);
        const At at{head.Row(to[std::min(row, last)])};
        dot[i] = square[i] = hn::Zero(df);
        const auto add = [&](VF x, VF y) HWY_ATTR {
          dot[i] = hn::MulAdd(x, y, dot[i]);
          square[i] = hn::MulAdd(x, x, square[i]);
        };
        if constexpr (kVectors > 0) {
#pragma GCC unroll 8
          for (int v = 0; v < kVectors; ++v) add(at(v * kLanes), own[v]);
        } else {
          for (int d = 0; d < head.dim; d += kLanes) add(at(d), hn::LoadU(df, from + d));
        }
      }
      dots[four] = SumFour(dot[0], dot[1], dot[2], dot[3]);
      squares[four] = SumFour(square[0], square[1], square[2], square[3]);
    }
    const VF square = SumBlocks(squares);
    const VF cosine = hn::IfThenElseZero(hn::Gt(square, hn::Zero(df)),
                                         hn::Div(SumBlocks(dots), hn::Sqrt(square)));
    hn::StoreU(cosine, df, out + first);
  }
}

template <class At>
void Cosines(const HostHeadRows& head, std::span<const int32_t> to, const float* from, float* out) {
  switch (head.dim / kLanes) {
    case 2:
      return RowCosinesTo<At, 2>(head, to, from, out);
    case 4:
      return RowCosinesTo<At, 4>(head, to, from, out);
    default:
      return RowCosinesTo<At, 0>(head, to, from, out);
  }
}

// The same for any type and dim, at most kTileRows rows. out [kTileRows]. `unpacked`: working
// memory [kTileRows, dim].
void RowCosines(const HostHeadRows& head, std::span<const int32_t> to, const float* from,
                float* unpacked, float* out) {
  CheckRows(head, to);
  if (head.dim % kLanes == 0) {
    switch (head.type) {
      case TensorType::kF32:
        return Cosines<ElementsAt<F32Elements>>(head, to, from, out);
      case TensorType::kF16:
        return Cosines<ElementsAt<F16Elements>>(head, to, from, out);
      case TensorType::kBF16:
        return Cosines<ElementsAt<Bf16Elements>>(head, to, from, out);
      case TensorType::kQ8_0:
        return Cosines<BlocksAt<Q8Block>>(head, to, from, out);
      default:
        return Cosines<BlocksAt<Q4Block>>(head, to, from, out);
    }
  }
  UnpackUnit(head, to, unpacked);
  for (size_t i = 0; i < to.size(); ++i, unpacked += head.dim) {
    float cosine = 0;
    for (int d = 0; d < head.dim; ++d) cosine += unpacked[d] * from[d];
    out[i] = cosine;
  }
}

// The largest cosine. Ties go to the row of lowest rank, or to the first if there are no ranks.
// cosines [kTileRows], of which the first to.size() are valid; fills the others. NaN never wins.
Match Largest(float* cosines, std::span<const int32_t> to, std::span<const int32_t> ranks) {
  const DF df;
  Match best;
  const VF lowest = hn::Set(df, best.cosine);
  std::fill(cosines + to.size(), cosines + kTileRows, best.cosine);
  VF highest = lowest;
  for (int i = 0; i < kTileRows; i += kLanes) {
    const VF next = hn::Load(df, cosines + i);
    highest = hn::IfThenElse(hn::Gt(next, highest), next, highest);  // false for NaN
  }
  highest = hn::MaxOfLanes(df, highest);
  if (hn::AllFalse(df, hn::Gt(highest, lowest))) return best;  // all are NaN
  best = {hn::GetLane(highest), -1};
  for (int i = 0; i < kTileRows; i += kLanes) {
    auto equal = hn::Eq(hn::Load(df, cosines + i), highest);
    while (!hn::AllFalse(df, equal)) {
      const auto lane = static_cast<int32_t>(hn::FindKnownFirstTrue(df, equal));
      const auto row_of = [&](int32_t index) { return to[static_cast<size_t>(index)]; };
      if (best.to < 0 ||
          Better(ranks, best.cosine, row_of(i + lane), best.cosine, row_of(best.to))) {
        best.to = i + lane;
      }
      if (ranks.empty()) return best;
      equal = hn::AndNot(hn::FirstN(df, static_cast<size_t>(lane) + 1), equal);
    }
  }
  return best;
}

// The rows of a tile whose product of cosines can reach min_similarity.
struct Candidates {
  // kLanes more elements: the last vector stored may end past the tile.
  alignas(64) int32_t rows[kTileRows + kLanes];
  alignas(64) int32_t places[kTileRows + kLanes];  // row numbers in the tile
  alignas(64) float cosines[kTileRows + kLanes];   // of the first kind of rows
  size_t n = 0;
};

// Appends the rows of `to` whose first cosine has a magnitude of at least `lowest`. cosines
// [kTileRows].
void TakeCandidates(const float* cosines, std::span<const int32_t> to, float lowest,
                    Candidates& found) {
  const DF df;
  const hn::RebindToSigned<DF> di;
  size_t i = 0;
  for (; i + kLanes <= to.size(); i += kLanes) {
    const VF cosine = hn::Load(df, cosines + i);
    const auto taken = hn::Ge(hn::Abs(cosine), hn::Set(df, lowest));
    const auto taken_numbers = hn::RebindMask(di, taken);
    const auto place = hn::Iota(di, static_cast<int32_t>(i));
    hn::CompressStore(hn::LoadU(di, to.data() + i), taken_numbers, di, found.rows + found.n);
    hn::CompressStore(place, taken_numbers, di, found.places + found.n);
    found.n += hn::CompressStore(cosine, taken, df, found.cosines + found.n);
  }
  for (; i < to.size(); ++i) {
    found.rows[found.n] = to[i];
    found.places[found.n] = static_cast<int32_t>(i);
    found.cosines[found.n] = cosines[i];
    found.n += std::abs(cosines[i]) >= lowest ? 1 : 0;
  }
}

// The most similar row of a tile; its index counts from the tile's first row. from: [kind, dim],
// unit vectors.
Match NearestOfTile(const HostSimilarity& s, std::span<const int32_t> to, const float* from,
                    float* unpacked) {
  const DF df;
  // A product exceeds its first factor by at most this, rounding included.
  constexpr double kMargin = 1.001;
  alignas(64) float cosines[kTileRows];
  const std::span<const HostHeadRows> kinds = s.kinds();
  RowCosines(kinds[0], to, from, unpacked, cosines);
  if (kinds.size() == 1) return Largest(cosines, to, s.ranks);
  // Compare the second kind only for rows whose product can reach `min_similarity`.
  Candidates found;
  TakeCandidates(cosines, to, static_cast<float>(s.min_similarity / kMargin), found);
  if (found.n == 0) return {};
  const std::span<const int32_t> rows = std::span(found.rows).first(found.n);
  RowCosines(kinds[1], rows, from + kinds[0].dim, unpacked, cosines);
  for (size_t i = 0; i < found.n; i += kLanes) {
    const VF product = hn::Mul(hn::Load(df, found.cosines + i), hn::Load(df, cosines + i));
    hn::Store(product, df, cosines + i);
  }
  Match nearest = Largest(cosines, rows, s.ranks);
  nearest.to = found.places[static_cast<size_t>(nearest.to)];
  return nearest;
}

// Runs all searches with few rows; threads share the tiles of all of them.
void MatchFewRows(std::span<const HostSimilarity> searches, std::vector<float>& scratch,
                  ThreadPool& pool) {
  int64_t dims = 0;
  int64_t n_chunks = 0;  // of the largest search, about as many as attention has
  for (const HostSimilarity& s : searches) {
    if (!HasFewRows(s)) continue;
    int64_t dims_of_search = 0;
    for (const HostHeadRows& kind : s.kinds()) dims_of_search += kind.dim;
    dims = std::max(dims, dims_of_search);
    const auto n_rows = static_cast<int64_t>(s.to.size() + s.from.size());
    n_chunks = std::max(n_chunks, (n_rows + kChunkSlots - 1) / kChunkSlots);
  }
  if (n_chunks == 0) return;
  constexpr int64_t kTilesPerChunk = kChunkSlots / kTileRows;
  const int64_t n_tiles = n_chunks * kTilesPerChunk;
  // Per search: rows of `from` [row, kind, dim], then the best match of every tile [row, tile,
  // cosine and index]. After all searches: working memory per thread.
  static_assert(sizeof(Match::to) == sizeof(float));
  const auto n_searches = static_cast<int64_t>(searches.size());
  const int64_t search_floats = kFewRows * (dims + 2 * n_tiles);
  const int64_t thread_floats = kTileRows * dims;
  const int64_t n_floats = n_searches * search_floats + pool.n_threads() * thread_floats;
  if (scratch.size() < static_cast<size_t>(n_floats)) scratch.resize(static_cast<size_t>(n_floats));
  float* threads = scratch.data() + n_searches * search_floats;
  const auto from_of = [&](int64_t search) { return scratch.data() + search * search_floats; };
  const auto nearest_of = [&](int64_t search, int64_t row, int64_t tile) {
    return from_of(search) + kFewRows * dims + 2 * (row * n_tiles + tile);
  };
  for (int64_t i = 0; i < n_searches; ++i) {
    const HostSimilarity& s = searches[static_cast<size_t>(i)];
    if (!HasFewRows(s)) continue;
    for (size_t row = 0; row < s.from.size(); ++row) {
      float* out = from_of(i) + static_cast<int64_t>(row) * dims;
      for (const HostHeadRows& kind : s.kinds()) {
        UnpackUnit(kind, s.from.subspan(row, 1), out);
        out += kind.dim;
      }
    }
  }
  const auto match_tile = [&](int64_t item, int thread) {
    const int64_t search = item / n_tiles;
    const int64_t tile = item % n_tiles;
    const HostSimilarity& s = searches[static_cast<size_t>(search)];
    const int64_t first = tile * kTileRows;
    const int64_t n = std::min<int64_t>(kTileRows, static_cast<int64_t>(s.to.size()) - first);
    if (!HasFewRows(s) || n <= 0) return;
    const auto to = s.to.subspan(static_cast<size_t>(first), static_cast<size_t>(n));
    for (size_t row = 0; row < s.from.size(); ++row) {
      const auto at = static_cast<int64_t>(row);
      Match nearest =
          NearestOfTile(s, to, from_of(search) + at * dims, threads + thread * thread_floats);
      nearest.to += static_cast<int32_t>(first);
      float* out = nearest_of(search, at, tile);
      out[0] = nearest.cosine;
      std::memcpy(out + 1, &nearest.to, sizeof(float));
    }
  };
  // Partition like attention, which has just read these rows, so that each thread starts with rows
  // in its cache. (Methods that merge keys store them rotated to their place in the text, so
  // attention took the path without rotation.)
  pool.ParallelFor(n_searches * n_tiles, match_tile,
                   kTilesPerChunk * ChunksTogether(n_searches * n_chunks, pool.n_threads()),
                   ThreadPool::Schedule::kStaticStealing);
  for (int64_t i = 0; i < n_searches; ++i) {
    const HostSimilarity& s = searches[static_cast<size_t>(i)];
    if (!HasFewRows(s)) continue;
    for (size_t row = 0; row < s.from.size(); ++row) {
      Match best;
      for (int64_t tile = 0; tile < Tiles(s); ++tile) {
        const float* found = nearest_of(i, static_cast<int64_t>(row), tile);
        Match nearest = {.cosine = found[0]};
        std::memcpy(&nearest.to, found + 1, sizeof(float));
        const auto row_of = [&](const Match& match) { return s.to[static_cast<size_t>(match.to)]; };
        if (Better(s.ranks, nearest.cosine, row_of(nearest), best.cosine, row_of(best))) {
          best = nearest;
        }
      }
      StoreBest(s, row, best.cosine, best.to);
    }
  }
}

}  // namespace winnow::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace winnow::kernels::cpu {

HWY_EXPORT(MatchFewRows);

void MatchFew(std::span<const HostSimilarity> searches, int64_t target, std::vector<float>& scratch,
              ThreadPool& pool) {
  ForTarget(HWY_DISPATCH_TABLE(MatchFewRows), target)(searches, scratch, pool);
}

}  // namespace winnow::kernels::cpu
#endif
