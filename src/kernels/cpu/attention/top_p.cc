#include "kernels/cpu/attention/top_p.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <cstddef>
#include <iterator>
#include <limits>
#include <utility>

namespace winnow::kernels::cpu {
namespace {

// Nonnegative floats have the order of their bits. A class is an eighth of a power of two.
constexpr int kClassShift = 20;
constexpr int kClasses = 1 << (31 - kClassShift);
int WeightClass(float weight) {
  return static_cast<int>(std::bit_cast<uint32_t>(weight) >> kClassShift);
}

struct Class {
  int64_t n = 0;
  double sum = 0;
};

// NaN cannot be ordered: all weights are kept, and the output is NaN.
Kept All(std::span<const float> weights) {
  return {.n = std::ssize(weights), .sum = std::numeric_limits<double>::quiet_NaN()};
}

}  // namespace

Kept KeepTopP(std::span<float> weights, double top_p, std::span<int32_t> candidates) {
  std::array<Class, kClasses> classes = {};
  for (const float weight : weights) {
    const int class_of = WeightClass(weight);
    if (class_of >= kClasses) return All(weights);  // NaN with its sign bit set
    Class& c = classes[static_cast<size_t>(class_of)];
    ++c.n;
    c.sum += weight;
  }
  double total = 0;
  for (const Class& c : classes) total += c.sum;
  if (!std::isfinite(total)) return All(weights);

  // Classes above the one where the sum reaches `wanted` are kept whole.
  const double wanted = top_p * total;
  Kept kept;
  int last = kClasses - 1;
  for (; last > 0; --last) {
    const Class& c = classes[static_cast<size_t>(last)];
    if (kept.sum + c.sum >= wanted) break;
    kept.n += c.n;
    kept.sum += c.sum;
  }
  size_t n_candidates = 0;
  for (size_t i = 0; i < weights.size(); ++i) {
    const int c = WeightClass(weights[i]);
    if (c == last) candidates[n_candidates++] = static_cast<int32_t>(i);
    if (c < last) weights[i] = 0;
  }
  const std::span<int32_t> undecided = candidates.first(n_candidates);
  std::sort(undecided.begin(), undecided.end(), [&](int32_t a, int32_t b) {
    return std::pair(weights[static_cast<size_t>(a)], a) >
           std::pair(weights[static_cast<size_t>(b)], b);
  });
  for (const int32_t i : undecided) {
    float& weight = weights[static_cast<size_t>(i)];
    if (kept.sum < wanted) {
      ++kept.n;
      kept.sum += weight;
    } else {
      weight = 0;
    }
  }
  return kept;
}

}  // namespace winnow::kernels::cpu
