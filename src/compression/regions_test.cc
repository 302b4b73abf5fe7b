#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "compression/parts.h"
#include "compression/registry.h"
#include "compression/testing/harness.h"

namespace winnow::compression {
namespace {

TEST(RegionsTest, AShareIsThatOfSinksAndRecentEntries) {
  // The stream experiments of TreeKV: 4 + 508 of 1024.
  const Regions half = {.sinks = 4, .recent = CountOrShare::Share(0.5)};
  EXPECT_EQ(half.Under(1024).sinks, 4);
  EXPECT_EQ(half.Under(1024).recent, 508);
  EXPECT_EQ(half.Under(9).recent, 0);
  EXPECT_EQ(half.Under(5).recent, 0);
  EXPECT_EQ(half.MinBudget(), 5);
  const Regions count = {.sinks = 4, .recent = 508};
  EXPECT_EQ(count.Under(1024).recent, 508);
  EXPECT_EQ(count.Under(600).recent, 508);
  EXPECT_EQ(count.MinBudget(), 513);
}

// Every step method that chooses by a score runs with the regions of TreeKV's experiments.
class StepMethods : public ::testing::TestWithParam<std::string> {};

TEST_P(StepMethods, KeepTheRegions) {
  for (const std::string recent : {"0.5", "16"}) {
    const auto method = MakeMethod(GetParam() + "sinks=4,recent=" + recent);
    ASSERT_TRUE(method.has_value()) << method.error().message;
    testing::Harness h(*method, {.n_q_heads = 2, .n_kv_heads = 2, .budget = 40});
    h.Prefill(30, testing::RandomWeights(1));
    for (uint64_t i = 0; i < 100; ++i) {
      if (i % 25 == 24) {
        h.Prefill(20, testing::RandomWeights(1000 + i));
      } else {
        h.Decode(testing::RandomWeights(100 + i));
      }
      for (int head = 0; head < 2; ++head) {
        const std::vector<Position> kept = h.Kept(0, head);
        ASSERT_LE(kept.size(), 40u);
        ASSERT_GE(kept.size(), 20u);
        for (int64_t rank = 0; rank < 4; ++rank) {
          ASSERT_EQ(kept[static_cast<size_t>(rank)], rank);
        }
        for (int64_t back = 1; back <= 16; ++back) {
          ASSERT_EQ(kept[kept.size() - static_cast<size_t>(back)], h.n_seen() - back);
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Methods, StepMethods,
                         ::testing::Values("h2o:", "tova:", "roco:", "scissorhands:", "keydiff:",
                                           "knorm:", "random:", "treekv:prefill=step,"));

}  // namespace
}  // namespace winnow::compression
