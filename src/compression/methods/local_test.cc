#include <gtest/gtest.h>

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

TEST(LocalTest, KeepsTheNewest) {
  Harness h(Make(methods::Local()), {.budget = 4});
  h.Prefill(10, NoWeights());
  EXPECT_EQ(h.Kept(), (Positions{6, 7, 8, 9}));
  h.Decode(NoWeights());
  EXPECT_EQ(h.Kept(), (Positions{7, 8, 9, 10}));
  EXPECT_EQ(h.method().traits().storage.positions, PositionMode::kReassigned);
}

TEST(LocalTest, AgreesWithTheClosedForm) { testing::ExpectFirstAndNewest(methods::Local(), "", 0); }

}  // namespace
}  // namespace winnow::compression
