#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <span>

namespace winnow::compression::select {

// The index of the lowest score, of equal ones the first, which is the oldest entry: what
// std::min_element finds with ScoreLess. A decode step asks it of every KV head: four lowest are
// sought side by side, as one would wait for itself at every score.
inline size_t OldestWorst(std::span<const double> scores) {
  std::array<double, 4> lowest;
  lowest.fill(scores.front());
  bool has_nan = false;
  size_t i = 0;
  for (; i + lowest.size() <= scores.size(); i += lowest.size()) {
    for (size_t lane = 0; lane < lowest.size(); ++lane) {
      const double score = scores[i + lane];
      lowest[lane] = score < lowest[lane] ? score : lowest[lane];
      has_nan |= std::isnan(score);
    }
  }
  for (; i < scores.size(); ++i) {
    lowest[0] = scores[i] < lowest[0] ? scores[i] : lowest[0];
    has_nan |= std::isnan(scores[i]);
  }
  const auto is_worst = [&, worst = *std::ranges::min_element(lowest)](double score) {
    return has_nan ? std::isnan(score) : score == worst;
  };
  return static_cast<size_t>(std::ranges::find_if(scores, is_worst) - scores.begin());
}

}  // namespace winnow::compression::select
