#pragma once

#include <algorithm>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

namespace winnow::compression::select {

// A run of scores cut into blocks of `size`; the last may be shorter.
struct Blocks {
  int64_t size = 1;
  int64_t n_entries = 0;

  int64_t n() const { return (n_entries + size - 1) / size; }
  int64_t begin(int64_t block) const { return block * size; }
  int64_t end(int64_t block) const { return std::min(n_entries, (block + 1) * size); }

  // Mean score of every block, over the entries it has (the last may have fewer than `size`).
  void Means(std::span<const double> scores, std::vector<double>& out) const {
    out.resize(static_cast<size_t>(n()));
    for (int64_t block = 0; block < n(); ++block) {
      const double sum =
          std::accumulate(scores.begin() + begin(block), scores.begin() + end(block), 0.0);
      out[static_cast<size_t>(block)] = sum / static_cast<double>(end(block) - begin(block));
    }
  }
};

}  // namespace winnow::compression::select
