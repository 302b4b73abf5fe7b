#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "base/check.h"
#include "base/thread_pool.h"
#include "kernels/cpu/similarity/similarity.h"

// The two implementations of MostSimilar, and their shared parts.
namespace winnow::kernels::cpu {

// A search with at most this many rows of `from` compares stored rows directly.
constexpr int64_t kFewRows = 2;
inline bool HasFewRows(const HostSimilarity& s) {
  return static_cast<int64_t>(s.from.size()) <= kFewRows;
}

// Rows of `to` per tile: a work item, or the rows packed together.
constexpr int kTileRows = 64;

// Runs all searches that have few rows; threads share the tiles of all of them.
void MatchFew(std::span<const HostSimilarity> searches, int64_t target, std::vector<float>& scratch,
              ThreadPool& pool);
// Runs one search with many rows: packs `to`; threads share the blocks of `from`.
void MatchMany(const HostSimilarity& search, int64_t target, std::vector<float>& scratch,
               ThreadPool& pool);

inline int64_t Tiles(const HostSimilarity& s) {
  return (static_cast<int64_t>(s.to.size()) + kTileRows - 1) / kTileRows;
}

inline void CheckRows(const HostHeadRows& head, std::span<const int32_t> rows) {
  constexpr int64_t kMax = std::numeric_limits<int32_t>::max();
  const auto last = static_cast<uint32_t>(std::min(head.n_rows - 1, kMax));
  // The sign bit is set if a row is negative or beyond the last one. No branch, so that the loop
  // vectorizes.
  uint32_t signs = 0;
  for (const int32_t row : rows)
    signs |= static_cast<uint32_t>(row) | (last - static_cast<uint32_t>(row));
  WINNOW_CHECK(signs <= static_cast<uint32_t>(kMax));
}

// A candidate row and its cosine.
struct Match {
  float cosine = -std::numeric_limits<float>::infinity();
  int32_t to = 0;  // index into `to`
};
// Whether `row` with `cosine` beats `best_row` with `best_cosine`.
inline bool Better(std::span<const int32_t> ranks, float cosine, int32_t row, float best_cosine,
                   int32_t best_row) {
  if (cosine != best_cosine) return cosine > best_cosine;
  return !ranks.empty() && ranks[static_cast<size_t>(row)] < ranks[static_cast<size_t>(best_row)];
}

// Stores the result for row `row` of `from`.
inline void StoreBest(const HostSimilarity& s, size_t row, float best, int32_t best_to) {
  const bool enough = best >= s.min_similarity;
  s.best[row] = enough ? best : -std::numeric_limits<float>::infinity();
  s.best_to[row] = enough ? best_to : Similarity::kNone;
}

}  // namespace winnow::kernels::cpu
