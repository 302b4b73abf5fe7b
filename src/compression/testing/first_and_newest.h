#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <vector>

#include "base/rng.h"
#include "compression/testing/harness.h"
#include "compression/testing/random.h"

namespace winnow::compression::testing {

// Of n tokens the first `sinks` and the newest, `budget` together; all of them if they fit.
inline std::vector<Position> FirstAndNewest(int64_t n, int64_t budget, int64_t sinks) {
  std::vector<Position> kept;
  const int64_t first = std::min(sinks, budget);
  for (int64_t t = 0; t < n; ++t) {
    if (n <= budget || t < first || t >= n - (budget - first)) {
      kept.push_back(static_cast<Position>(t));
    }
  }
  return kept;
}

// After every call of random streams of prompts, chunks and steps, each head of each layer holds
// FirstAndNewest with the tokens' own keys and values, whatever the attention.
inline void ExpectFirstAndNewest(const MethodEntry& entry, const std::string& parameters,
                                 int64_t sinks, bool per_query_head = false) {
  for (uint64_t seed = 0; seed < 40; ++seed) {
    Rng rng(seed);
    const auto draw = [&](uint64_t n) { return static_cast<int>(rng.Below(n)); };
    const int n_kv_heads = 1 + draw(3), group = 1 + draw(4);
    const int64_t budget = 1 + draw(40);
    Harness h(Make(entry, parameters), {.n_layers = 2,
                                        .n_q_heads = n_kv_heads * group,
                                        .n_kv_heads = n_kv_heads,
                                        .budget = budget});
    const auto vectors = [](int64_t which) -> Vectors {
      return [which](int layer, int head, Position t) {
        return RandomVector({which, layer, head, t}, 2);
      };
    };
    h.SetKeys(vectors(1));
    h.SetValues(vectors(2));
    for (int call = 0; call < 12; ++call) {
      const Weights weights = RandomWeights(seed * 100 + static_cast<uint64_t>(call));
      if (draw(2) == 0) {
        h.Decode(weights);
      } else {
        h.Prefill(1 + draw(50), weights);
      }
      const std::vector<Position> expected = FirstAndNewest(h.n_seen(), budget, sinks);
      for (int layer = 0; layer < 2; ++layer) {
        for (int head = 0; head < n_kv_heads * (per_query_head ? group : 1); ++head) {
          ASSERT_EQ(h.Kept(layer, head), expected)
              << "budget " << budget << ", " << h.n_seen() << " tokens, seed " << seed;
          const int kv_head = per_query_head ? head / group : head;
          for (size_t rank = 0; rank < expected.size(); ++rank) {
            const auto at = static_cast<int64_t>(rank);
            ASSERT_EQ(h.Key(at, layer, head), vectors(1)(layer, kv_head, expected[rank]));
            ASSERT_EQ(h.Value(at, layer, head), vectors(2)(layer, kv_head, expected[rank]));
          }
        }
      }
    }
  }
}

}  // namespace winnow::compression::testing
