#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "base/check.h"
#include "base/thread_pool.h"
#include "kernels/cpu/similarity/similarity.h"

// The two ways of finding the most similar rows, and what they share.
namespace winnow::kernels::cpu {

// A search with at most so many rows compares directly.
constexpr int64_t kFewRows = 2;
inline bool HasFewRows(const HostSimilarity& s) {
  return static_cast<int64_t>(s.from.size()) <= kFewRows;
}

// Rows of `to` that are one job, or packed together.
constexpr int kTileRows = 64;

// All searches that have few rows: tiles of all of them over the threads.
void MatchFew(std::span<const HostSimilarity> searches, int64_t target, std::vector<float>& scratch,
              ThreadPool& pool);
// One search with many: rows `to` are packed, and blocks of `from` over the threads.
void MatchMany(const HostSimilarity& search, int64_t target, std::vector<float>& scratch,
               ThreadPool& pool);

inline int64_t Tiles(const HostSimilarity& s) {
  return (static_cast<int64_t>(s.to.size()) + kTileRows - 1) / kTileRows;
}

inline void CheckRows(const HostHeadRows& head, std::span<const int32_t> rows) {
  constexpr int64_t kMax = std::numeric_limits<int32_t>::max();
  const auto last = static_cast<uint32_t>(std::min(head.n_rows - 1, kMax));
  // The sign bit of any row, or of its distance to the last one: a loop of whole vectors.
  uint32_t signs = 0;
  for (const int32_t row : rows)
    signs |= static_cast<uint32_t>(row) | (last - static_cast<uint32_t>(row));
  WINNOW_CHECK(signs <= static_cast<uint32_t>(kMax));
}

// A row that was compared.
struct Match {
  float cosine = -std::numeric_limits<float>::infinity();
  int32_t to = 0;  // index
};
// Whether row `row` with this cosine is taken instead of row `best_row` with that one.
inline bool Better(std::span<const int32_t> ranks, float cosine, int32_t row, float best_cosine,
                   int32_t best_row) {
  if (cosine != best_cosine) return cosine > best_cosine;
  return !ranks.empty() && ranks[static_cast<size_t>(row)] < ranks[static_cast<size_t>(best_row)];
}

// What was found for row `row` of `from`.
inline void StoreBest(const HostSimilarity& s, size_t row, float best, int32_t best_to) {
  const bool enough = best >= s.min_similarity;
  s.best[row] = enough ? best : -std::numeric_limits<float>::infinity();
  s.best_to[row] = enough ? best_to : Similarity::kNone;
}

}  // namespace winnow::kernels::cpu
