#include "kernels/cpu/attention/top_p.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

namespace winnow::kernels::cpu {
namespace {

Kept Keep(std::vector<float>& weights, double top_p) {
  std::vector<int32_t> candidates(weights.size());
  return KeepTopP(weights, top_p, candidates);
}

TEST(TopPTest, KeepsTheSmallestSetThatReachesTheShare) {
  std::vector<float> weights = {1, 4, 2, 1};
  const Kept kept = Keep(weights, 0.75);
  EXPECT_EQ(kept.n, 2);
  EXPECT_EQ(kept.sum, 6);
  EXPECT_EQ(weights, (std::vector<float>{0, 4, 2, 0}));
}

// x86 computes infinity - infinity as a NaN with its sign bit set, whose class would be out of
// range. NaN and infinity keep all weights and make the sum NaN.
TEST(TopPTest, NanKeepsAll) {
  constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const float odd : {kNaN, std::copysign(kNaN, -1.0f), kInfinity}) {
    std::vector<float> weights = {1, odd, 2, 0.5};
    const Kept kept = Keep(weights, 0.5);
    EXPECT_EQ(kept.n, 4);
    EXPECT_TRUE(std::isnan(kept.sum));
    EXPECT_EQ(weights[3], 0.5);
  }
}

}  // namespace
}  // namespace winnow::kernels::cpu
