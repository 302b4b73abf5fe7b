#pragma once

#include <cstdint>
#include <initializer_list>
#include <vector>

#include "base/rng.h"

namespace winnow::compression::testing {

// Uniform in [0, 1), a function of the arguments only: two implementations can ask for the same
// numbers without sharing a generator.
inline double Random(std::initializer_list<int64_t> of) {
  uint64_t seed = 1;
  for (const int64_t part : of) seed = Rng(seed ^ static_cast<uint64_t>(part)).Next();
  return Rng(seed).Uniform();
}

// [dim], uniform in [-1, 1).
inline std::vector<float> RandomVector(std::initializer_list<int64_t> of, int dim) {
  uint64_t seed = 1;
  for (const int64_t part : of) seed = Rng(seed ^ static_cast<uint64_t>(part)).Next();
  Rng rng(seed);
  std::vector<float> vector;
  for (int i = 0; i < dim; ++i) vector.push_back(static_cast<float>(2 * rng.Uniform() - 1));
  return vector;
}

}  // namespace winnow::compression::testing
