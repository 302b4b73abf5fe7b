#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <span>

namespace winnow::compression::select {

// The index of the lowest score; among equal ones the first, which is the oldest entry
// (std::min_element with ScoreLess). Runs for every KV head in a decode step, so it is written for
// speed: four independent minima avoid one dependency chain, and the index is searched only in the
// block that holds the minimum.
inline size_t OldestWorst(std::span<const double> scores) {
  constexpr size_t kBlock = 64;
  double worst = scores.front();
  size_t block = 0;
  for (size_t first = 0; first < scores.size(); first += kBlock) {
    const std::span<const double> own =
        scores.subspan(first, std::min(kBlock, scores.size() - first));
    std::array<double, 4> lowest;
    lowest.fill(own.front());
    bool has_nan = false;
    const size_t n_whole = own.size() - own.size() % lowest.size();
    for (size_t i = 0; i < n_whole; i += lowest.size()) {
      for (size_t lane = 0; lane < lowest.size(); ++lane) {
        const double score = own[i + lane];
        lowest[lane] = score < lowest[lane] ? score : lowest[lane];
        has_nan |= std::isnan(score);
      }
    }
    for (const double score : own.subspan(n_whole)) {
      lowest[0] = score < lowest[0] ? score : lowest[0];
      has_nan |= std::isnan(score);
    }
    if (has_nan) {
      const auto is_nan = [](double score) { return std::isnan(score); };
      return first + static_cast<size_t>(std::ranges::find_if(own, is_nan) - own.begin());
    }
    const double of_block = *std::ranges::min_element(lowest);
    if (of_block < worst) {
      worst = of_block;
      block = first;
    }
  }
  const auto at = std::find(scores.begin() + static_cast<ptrdiff_t>(block), scores.end(), worst);
  return static_cast<size_t>(at - scores.begin());
}

}  // namespace winnow::compression::select
