#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

// Decisions on numbers that come from a model. They may be NaN, infinite, or so large that their
// sums overflow; every decision is still defined (docs/reliability.md). No other code of this room
// compares scores or converts a real number to a count.
namespace winnow::compression {

// The order of scores: NaN is below every number and equal to itself, infinities compare as
// numbers, -0 equals 0. A strict weak order, so it may be passed to std::sort, std::nth_element and
// heaps.
inline bool ScoreLess(double a, double b) { return !std::isnan(b) && !(a >= b); }

// Orders indices of scores from the first to evict to the last: the lowest score first; among equal
// scores the smallest index, which is the oldest entry (docs/methods/semantics.md#ties).
struct WorstFirst {
  std::span<const double> scores;

  bool operator()(int32_t a, int32_t b) const {
    const double x = scores[static_cast<size_t>(a)];
    const double y = scores[static_cast<size_t>(b)];
    if (ScoreLess(x, y)) return true;
    return !ScoreLess(y, x) && a < b;
  }
};

// The reverse: from the first to keep; among equal scores the newest.
struct BestFirst {
  std::span<const double> scores;

  bool operator()(int32_t a, int32_t b) const { return WorstFirst{scores}(b, a); }
};

// Above any possible number of entries, and small enough to add and to multiply by the number of
// layers.
constexpr int64_t kMaxCount = int64_t{1} << 48;

// The largest count that is not above `value`, within [0, max]. NaN gives 0, infinity gives `max`.
// Requires: 0 <= max <= 2^53, up to which a double holds every integer.
inline int64_t CountFrom(double value, int64_t max = kMaxCount) {
  if (!(value > 0)) return 0;
  return value < static_cast<double>(max) ? static_cast<int64_t>(value) : max;
}

// part / sum, the share of one of several non-negative numbers; `otherwise` if the sum is zero, NaN
// or infinite.
inline double Fraction(double part, double sum, double otherwise) {
  return sum > 0 && std::isfinite(sum) ? part / sum : otherwise;
}

// The largest of at least one number. NaNs are ignored, except at x[0], which makes the result NaN.
// Works in 16 lanes, so that compilers vectorize it.
inline float Largest(std::span<const float> x) {
  constexpr size_t kLanes = 16;
  std::array<float, kLanes> lanes;
  lanes.fill(x[0]);
  size_t i = 0;
  for (; i + kLanes <= x.size(); i += kLanes) {
    for (size_t lane = 0; lane < kLanes; ++lane) lanes[lane] = std::max(lanes[lane], x[i + lane]);
  }
  for (; i < x.size(); ++i) lanes[0] = std::max(lanes[0], x[i]);
  return *std::ranges::max_element(lanes);
}

// The softmax of some logits, in place. NaN in one makes all of them NaN.
inline void Softmax(std::span<double> x) {
  double max = -std::numeric_limits<double>::infinity();
  for (const double one : x) max = ScoreLess(max, one) ? one : max;
  double sum = 0;
  for (double& one : x) sum += one = std::exp(one - max);
  for (double& one : x) one /= sum;
}

}  // namespace winnow::compression
