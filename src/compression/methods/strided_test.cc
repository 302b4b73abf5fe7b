#include <gtest/gtest.h>

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

TEST(StridedTest, KeepsMultiplesOfAPowerOfTwoAndTheNewest) {
  Harness h(Make(methods::Strided(), "sinks=1,recent=4"), {.budget = 8});
  h.Prefill(32, NoWeights());
  EXPECT_EQ(h.Kept(), (Positions{0, 8, 16, 24, 28, 29, 30, 31}));
  h.Decode(NoWeights());  // token 28 leaves the newest four, and is not a multiple of 8
  EXPECT_EQ(h.Kept(), (Positions{0, 8, 16, 24, 29, 30, 31, 32}));
}

TEST(StridedTest, TheStrideDoublesAsTheTextGrows) {
  Harness h(Make(methods::Strided(), "sinks=0,recent=0"), {.budget = 8});
  h.Prefill(32, NoWeights());
  EXPECT_EQ(h.Kept(), (Positions{0, 4, 8, 12, 16, 20, 24, 28}));
  for (int i = 0; i < 32; ++i) h.Decode(NoWeights());
  EXPECT_EQ(h.Kept(), (Positions{0, 8, 16, 24, 32, 40, 48, 56}));
}

}  // namespace
}  // namespace winnow::compression
