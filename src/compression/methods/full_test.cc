#include <gtest/gtest.h>

#include "compression/methods/methods.h"
#include "compression/testing/harness.h"

namespace winnow::compression {
namespace {

TEST(FullTest, KeepsEverythingAndAsksForNothing) {
  const MethodPtr method = testing::Make(methods::Full());
  EXPECT_FALSE(method->traits().budget.needed);
  EXPECT_EQ(method->needs(), Needs{});
  EXPECT_EQ(method->MaxSlots(10, 1000), 1000);
  testing::Harness h(method, {.n_layers = 2});
  h.Prefill(50, testing::RandomWeights(1));
  for (int i = 0; i < 20; ++i) h.Decode(testing::RandomWeights(2));
  EXPECT_EQ(h.Kept(1).size(), 70u);
}

}  // namespace
}  // namespace winnow::compression
