#include <gtest/gtest.h>

#include "compression/methods/methods.h"
#include "compression/testing/harness.h"

namespace winnow::compression::methods {
namespace {

TEST(TwilightTest, EvictsNothing) {
  testing::Harness h(testing::Make(Twilight()), {});
  h.Prefill(50, [](const testing::Cell&) { return 0.0; });
  for (int step = 0; step < 5; ++step) h.Decode([](const testing::Cell&) { return 0.0; });
  EXPECT_EQ(h.Kept().size(), 55u);
  EXPECT_TRUE(h.plans().empty());
}

TEST(TwilightTest, SelectsInsideAttention) {
  const MethodPtr method = testing::Make(Twilight(), "p=0.85,dense_layers=1");
  EXPECT_EQ(method->traits().attention.top_p, 0.85f);
  EXPECT_EQ(method->traits().attention.dense_layers, 1);
  EXPECT_FALSE(method->traits().budget.needed);
  EXPECT_FALSE(method->traits().decisions.Evicts(Phase::kPrefill));
  EXPECT_FALSE(method->traits().decisions.evicts_in_decode);
  EXPECT_EQ(method->needs(), Needs()) << "selection and taps do not go together";
}

}  // namespace
}  // namespace winnow::compression::methods
