#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "kernels/cpu/head_rows.h"
#include "kernels/ops.h"

// Finds the most similar rows in plain host memory; see Backend::MostSimilar in ops.h.
namespace winnow::kernels::cpu {

struct HostSimilarity {
  // One or two kinds of rows (keys, values), whose cosines are multiplied.
  std::array<HostHeadRows, 2> all_kinds;
  size_t n_kinds = 1;
  std::span<const int32_t> from;
  std::span<const int32_t> to;
  std::span<const int32_t> ranks;
  double min_similarity = 0;
  std::span<float> best;
  std::span<int32_t> best_to;

  std::span<const HostHeadRows> kinds() const { return std::span(all_kinds).first(n_kinds); }
};

// A search with many rows packs `to` once, as unit vectors, one per lane, and then compares every
// row of `from` with all of them. `scratch` keeps its memory between calls: about 4 * |to| * dim
// bytes of one search. Searches with few rows run together.
void MostSimilar(std::span<const HostSimilarity> searches, int64_t target,
                 std::vector<float>& scratch, ThreadPool& pool);

}  // namespace winnow::kernels::cpu
