#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "compression/methods/methods.h"
#include "compression/testing/first_and_newest.h"
#include "compression/testing/harness.h"
#include "compression/testing/vectors.h"

namespace winnow::compression {
namespace {

using testing::Harness;
using testing::Make;
using testing::NoWeights;
using Positions = std::vector<Position>;

TEST(StreamingTest, KeepsTheFirstAndTheNewest) {
  Harness h(Make(methods::Streaming(), "sinks=2"), {.budget = 6});
  h.Prefill(10, NoWeights());
  EXPECT_EQ(h.Kept(), (Positions{0, 1, 6, 7, 8, 9}));
  h.Decode(NoWeights());
  EXPECT_EQ(h.Kept(), (Positions{0, 1, 7, 8, 9, 10}));
  EXPECT_EQ(h.method().traits().storage.positions, PositionMode::kReassigned);
}

TEST(StreamingTest, SinksAreCutToTheBudget) {
  Harness h(Make(methods::Streaming()), {.budget = 3});
  h.Prefill(10, NoWeights());
  EXPECT_EQ(h.Kept(), (Positions{0, 1, 2}));
}

TEST(StreamingTest, AgreesWithTheClosedForm) {
  testing::ExpectFirstAndNewest(methods::Streaming(), "", 4);
  for (const int sinks : {0, 1, 7, 100}) {
    testing::ExpectFirstAndNewest(methods::Streaming(), "sinks=" + std::to_string(sinks), sinks);
  }
  testing::ExpectFirstAndNewest(methods::Streaming(), "positions=original", 4);
  testing::ExpectFirstAndNewest(methods::Streaming(), "heads=query", 4, true);
}

}  // namespace
}  // namespace winnow::compression
