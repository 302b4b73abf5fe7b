#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <iterator>
#include <string>
#include <vector>

#include "base/rng.h"
#include "compression/methods/methods.h"
#include "compression/testing/harness.h"
#include "compression/testing/vectors.h"

namespace winnow::compression {
namespace {

using testing::Harness;
using testing::Make;
using testing::NoWeights;
using Positions = std::vector<Position>;

Positions KeptPositions(const char* parameters, int64_t budget, int64_t n_prompt) {
  Harness h(Make(methods::Random(), parameters), {.budget = budget});
  h.Prefill(n_prompt, NoWeights());
  return h.Kept();
}

TEST(RandomTest, KeepsSinksAndRecentTokens) {
  const Positions kept = KeptPositions("sinks=3,recent=5", 20, 200);
  ASSERT_EQ(kept.size(), 20u);
  EXPECT_EQ(Positions(kept.begin(), kept.begin() + 3), (Positions{0, 1, 2}));
  EXPECT_EQ(Positions(kept.end() - 5, kept.end()), (Positions{195, 196, 197, 198, 199}));
}

TEST(RandomTest, TheSeedDecides) {
  EXPECT_EQ(KeptPositions("seed=7", 40, 400), KeptPositions("seed=7", 40, 400));
  EXPECT_NE(KeptPositions("seed=7", 40, 400), KeptPositions("seed=8", 40, 400));
}

// Over many seeds every position is kept about equally often: of 1000 draws of 50 out of 100, each
// count is within five standard deviations of 500.
TEST(RandomTest, FavoursNoPlace) {
  constexpr int kSeeds = 1000;
  std::vector<int> times(100, 0);
  for (int seed = 0; seed < kSeeds; ++seed) {
    const std::string parameters = "sinks=0,recent=0,seed=" + std::to_string(seed);
    for (const Position position : KeptPositions(parameters.c_str(), 50, 100)) {
      ++times[static_cast<size_t>(position)];
    }
  }
  const auto [min, max] = std::minmax_element(times.begin(), times.end());
  EXPECT_GT(*min, 500 - 5 * 16);
  EXPECT_LT(*max, 500 + 5 * 16);
}

// The same over the layers and heads of one seed.
TEST(RandomTest, FavoursNoPlaceOverTheHeads) {
  constexpr int kLayers = 32, kHeads = 32;
  Harness h(Make(methods::Random(), "sinks=0,recent=0"),
            {.n_layers = kLayers, .n_q_heads = kHeads, .n_kv_heads = kHeads, .budget = 50});
  h.Prefill(100, NoWeights());
  std::vector<int> times(100, 0);
  for (int layer = 0; layer < kLayers; ++layer) {
    for (int head = 0; head < kHeads; ++head) {
      for (const Position position : h.Kept(layer, head)) ++times[static_cast<size_t>(position)];
    }
  }
  const auto [min, max] = std::minmax_element(times.begin(), times.end());
  EXPECT_GT(*min, 512 - 5 * 16);
  EXPECT_LT(*max, 512 + 5 * 16);
}

// Two sets of 50 out of 200 that know nothing of each other share 12.5 tokens in the mean, with a
// standard deviation of 2.7; neighbours are as often kept together as any two tokens.
TEST(RandomTest, HeadsLayersSeedsAndNeighboursAreIndependent) {
  constexpr int kLayers = 4, kHeads = 4;
  std::vector<Positions> sets;
  for (const char* seed : {"sinks=0,recent=0,seed=5", "sinks=0,recent=0,seed=6"}) {
    Harness h(Make(methods::Random(), seed),
              {.n_layers = kLayers, .n_q_heads = kHeads, .n_kv_heads = kHeads, .budget = 50});
    h.Prefill(200, NoWeights());
    for (int layer = 0; layer < kLayers; ++layer) {
      for (int head = 0; head < kHeads; ++head) sets.push_back(h.Kept(layer, head));
    }
  }
  double shared = 0, neighbours = 0;
  int n_pairs = 0;
  for (size_t i = 0; i < sets.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      Positions both;
      std::ranges::set_intersection(sets[i], sets[j], std::back_inserter(both));
      EXPECT_NEAR(static_cast<double>(both.size()), 12.5, 5 * 2.7) << i << " and " << j;
      shared += static_cast<double>(both.size());
      ++n_pairs;
    }
    for (size_t k = 1; k < sets[i].size(); ++k) neighbours += sets[i][k] == sets[i][k - 1] + 1;
  }
  EXPECT_NEAR(shared / n_pairs, 12.5, 5 * 2.7 / std::sqrt(n_pairs));
  // 199 pairs, each kept with a probability of 50/200 * 49/199; the standard deviation of a set is
  // 2.6.
  const auto n_sets = static_cast<double>(sets.size());
  EXPECT_NEAR(neighbours / n_sets, 199 * 50.0 / 200 * 49 / 199, 5 * 2.6 / std::sqrt(n_sets));
}

// Exactly the budget stays, sinks and recent tokens among it, and neither the attention nor the
// group nor the calls in which the text comes make a difference.
TEST(RandomTest, OnlySeedLayerHeadAndPositionDecide) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    Rng rng(seed);
    const auto draw = [&](uint64_t n) { return static_cast<int>(rng.Below(n)); };
    const int64_t sinks = draw(5), recent = draw(7), budget = sinks + recent + 1 + draw(30);
    const std::string parameters = "sinks=" + std::to_string(sinks) +
                                   ",recent=" + std::to_string(recent) +
                                   ",seed=" + std::to_string(seed);
    const testing::HarnessConfig config = {
        .n_layers = 2, .n_q_heads = 6, .n_kv_heads = 3, .budget = budget};
    Harness stream(Make(methods::Random(), parameters), config);
    testing::HarnessConfig of_one = config;
    of_one.n_q_heads = 3;
    for (int call = 0; call < 8; ++call) {
      const testing::Weights weights = testing::RandomWeights(seed + static_cast<uint64_t>(call));
      if (draw(2) == 0) {
        stream.Decode(weights);
      } else {
        stream.Prefill(1 + draw(40), weights);
      }
      const int64_t n = stream.n_seen();
      Harness whole(Make(methods::Random(), parameters), of_one);
      whole.Prefill(n, NoWeights());
      for (int layer = 0; layer < 2; ++layer) {
        for (int head = 0; head < 3; ++head) {
          const Positions kept = stream.Kept(layer, head);
          ASSERT_EQ(kept, whole.Kept(layer, head)) << parameters << ", " << n << " tokens";
          ASSERT_EQ(std::ssize(kept), std::min(n, budget));
          for (int64_t i = 0; i < std::min(n, sinks); ++i) ASSERT_EQ(kept[i], i);
          for (int64_t i = 1; i <= std::min(n, recent); ++i) ASSERT_EQ(kept.end()[-i], n - i);
        }
      }
    }
  }
}

}  // namespace
}  // namespace winnow::compression
