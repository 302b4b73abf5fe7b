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

TEST(StreamingTest, KeepsTheFirstAndTheNewest) {
  Harness h(Make(methods::Streaming(), "sinks=2"), {.budget = 6});
  h.Prefill(10, NoWeights());
  EXPECT_EQ(h.Kept(), (Positions{0, 1, 6, 7, 8, 9}));
  h.Decode(NoWeights());
  EXPECT_EQ(h.Kept(), (Positions{0, 1, 7, 8, 9, 10}));
  EXPECT_EQ(h.method().traits().storage.positions, PositionMode::kReassigned);
}

TEST(StreamingTest, StepsAndChunksAndPromptsEndAlike) {
  for (const int64_t n_new : {1, 3, 50, 150}) {
    Harness h(Make(methods::Streaming()), {.budget = 12});
    for (int64_t seen = 0; seen < 150; seen += n_new) h.Prefill(n_new, NoWeights());
    EXPECT_EQ(h.Kept(), (Positions{0, 1, 2, 3, 142, 143, 144, 145, 146, 147, 148, 149}));
  }
}

TEST(StreamingTest, SinksAreCutToTheBudget) {
  Harness h(Make(methods::Streaming()), {.budget = 3});
  h.Prefill(10, NoWeights());
  EXPECT_EQ(h.Kept(), (Positions{0, 1, 2}));
}

TEST(LocalTest, KeepsTheNewest) {
  Harness h(Make(methods::Local()), {.budget = 4});
  h.Prefill(10, NoWeights());
  EXPECT_EQ(h.Kept(), (Positions{6, 7, 8, 9}));
  h.Decode(NoWeights());
  EXPECT_EQ(h.Kept(), (Positions{7, 8, 9, 10}));
}

}  // namespace
}  // namespace winnow::compression
