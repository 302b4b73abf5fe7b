#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

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

// A stream keeps what the same draws would keep of the whole text, because scores never change.
TEST(RandomTest, AStreamKeepsTheBestOfAllDraws) {
  Harness h(Make(methods::Random(), "sinks=0,recent=0"), {.budget = 10});
  h.Prefill(40, NoWeights());
  for (int i = 0; i < 160; ++i) h.Decode(NoWeights());
  EXPECT_EQ(h.Kept(), KeptPositions("sinks=0,recent=0", 10, 200));
}

}  // namespace
}  // namespace winnow::compression
