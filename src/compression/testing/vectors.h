#pragma once

#include <cmath>
#include <cstddef>
#include <span>
#include <vector>

#include "compression/testing/harness.h"

namespace winnow::compression::testing {

// For methods that read no attention.
inline Weights NoWeights() {
  return [](const Cell&) { return 0.0; };
}

// RoPE at a position: rotates the pairs (i, i + n) with n frequencies; the remaining dimensions
// stay.
inline std::vector<float> Rotated(std::vector<float> vector, std::span<const double> frequencies,
                                  double position) {
  const size_t n = frequencies.size();
  for (size_t pair = 0; pair < n; ++pair) {
    const double angle = frequencies[pair] * position;
    const double a = vector[pair], b = vector[pair + n];
    vector[pair] = static_cast<float>(a * std::cos(angle) - b * std::sin(angle));
    vector[pair + n] = static_cast<float>(a * std::sin(angle) + b * std::cos(angle));
  }
  return vector;
}

}  // namespace winnow::compression::testing
