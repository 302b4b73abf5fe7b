#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "compression/methods/ems_classes.h"
#include "compression/methods/ems_testing.h"
#include "compression/methods/methods.h"
#include "compression/testing/harness.h"
#include "compression/testing/random.h"
#include "compression/testing/under_budget.h"

namespace winnow::compression::methods {
namespace {

using ems::RuntimeKey;
using testing::Cell;
using testing::Harness;
using testing::Weights;

// Passes fixed taps to a method: the examples' numbers need not come from a softmax.
class WithTaps final : public Method {
 public:
  WithTaps(MethodPtr method, kernels::Taps taps)
      : method_(std::move(method)), taps_(std::move(taps)) {}
  const Traits& traits() const override { return method_->traits(); }
  Needs needs() const override {
    return {.prefill = {}, .decode = {}, .state = method_->needs().state};
  }
  void Decide(const LayerCall& call, PlanList& plans) const override {
    method_->Decide(call.WithTaps(taps_), plans);
  }

 private:
  MethodPtr method_;
  kernels::Taps taps_;
};

// Puts all of s_Loc into the first row of the window.
kernels::Taps Taps(std::vector<double> global, std::vector<float> local, int window) {
  kernels::Taps taps;
  taps.n_last_rows = window;
  taps.last_rows = {std::move(local)};
  taps.last_rows[0].resize(global.size() * static_cast<size_t>(window));
  taps.column_sums = {std::move(global)};
  return taps;
}

Slot SharedRow(const Harness& h, int64_t rank, int layer = 0, int head = 0) {
  const Slot slot = h.cache().order(layer, head)[static_cast<size_t>(rank)];
  return h.cache().rows(layer, head)[static_cast<size_t>(slot)];
}

void ExpectNear(const std::vector<double>& found, const std::vector<double>& expected,
                double tolerance = 1e-6) {
  ASSERT_EQ(found.size(), expected.size());
  for (size_t i = 0; i < found.size(); ++i) EXPECT_NEAR(found[i], expected[i], tolerance);
}

// The example of docs/methods/semantics.md#ems: s_GL = [1, .5, .7, .4, .6]. With gamma = 1 the best
// stay.
TEST(EmsTest, ScoresBalanceGlobalAndLocal) {
  const std::vector<std::vector<Position>> kept = {
      {0, 5}, {0, 2, 5}, {0, 2, 4, 5}, {0, 1, 2, 4, 5}};
  for (int64_t n_founders = 1; n_founders <= 4; ++n_founders) {
    const auto method =
        std::make_shared<WithTaps>(testing::Make(Ems(), "window=1,kernel=1,gamma=1"),
                                   Taps({4, 2, 1, .6, .4, 0}, {.2f, .1f, .7f, .4f, .6f, 0}, 1));
    Harness h(method, {.budget = n_founders + 1});
    h.Prefill(6, [](const Cell&) { return 0.0; });
    EXPECT_EQ(h.Kept(), kept[static_cast<size_t>(n_founders - 1)]);
  }
}

// A prompt of eight entries, merged by hand.
TEST(EmsTest, MergesAPrompt) {
  const std::vector<std::vector<float>> keys = {{2, 0}, {1, .2f}, {0, 1},     {0, 3},
                                                {1, 1}, {-1, 0},  {.5f, .1f}, {.3f, .3f}};
  const std::vector<std::vector<float>> values = {{1, 0},  {1, .1f}, {0, 2},   {0, 1},
                                                  {-1, 1}, {1, 0},   {.2f, 1}, {1, 1}};
  const auto method = std::make_shared<WithTaps>(
      testing::Make(Ems(), "window=2,kernel=1,gamma=2,tau=0.6"),
      Taps({3, .8, 1.5, .6, .7, .4, .6, .4}, {.5f, .2f, .4f, .3f, .05f, .05f, .3f, .2f}, 2));
  Harness h(method, {.budget = 4});
  h.SetKeys([&](int, int, Position t) { return keys[static_cast<size_t>(t)]; });
  h.SetValues([&](int, int, Position t) { return values[static_cast<size_t>(t)]; });
  h.Prefill(8, [](const Cell&) { return 0.0; });
  EXPECT_EQ(h.Kept(), (std::vector<Position>{0, 1, 2, 3, 6, 7}));
  EXPECT_EQ(h.cache().n_rows(0, 0), 4);
  EXPECT_EQ(SharedRow(h, 0), SharedRow(h, 1));
  EXPECT_EQ(SharedRow(h, 2), SharedRow(h, 3));
  ExpectNear(RuntimeKey(h, 0), {1.988903, .112066});
  ExpectNear(RuntimeKey(h, 1), {1.014146, .057143}, 1e-3);
  ExpectNear(RuntimeKey(h, 2), {0, 1}, 1e-3);
  ExpectNear(RuntimeKey(h, 3), {0, 3});
  ExpectNear(RuntimeKey(h, 4), {.5, .1});
  ExpectNear(RuntimeKey(h, 5), {.3, .3});
  const auto value = [&](int64_t rank) {
    const std::vector<float> row = h.Value(rank);
    return std::vector<double>(row.begin(), row.end());
  };
  ExpectNear(value(1), {1, .028571});
  ExpectNear(value(3), {0, 1.571429});
  const std::span<const Half> factors = h.cache().factors(0, 0);
  EXPECT_EQ(float{factors[0]}, 2);
  EXPECT_NEAR(factors[1], std::hypot(1, .2f), 5e-4) << "a half";
  EXPECT_EQ(float{factors[2]}, ems::Factor(1)) << "1 marks rows that are keys";
  EXPECT_EQ(float{factors[4]}, 1);
}

TEST(EmsTest, APromptThatFitsIsLeftAlone) {
  Harness h(testing::Make(Ems(), "window=4"), {.budget = 10});
  h.SetKeys([](int, int, Position t) { return testing::RandomVector({t}, 2); });
  const Weights weights = [](const Cell& cell) { return testing::Random({cell.rank}); };
  h.Prefill(8, weights);
  EXPECT_TRUE(h.plans().empty());
  for (int step = 0; step < 2; ++step) {
    h.Decode(weights);
    EXPECT_TRUE(h.plans().empty());
  }
  EXPECT_TRUE(h.cache().keys_rotated(0)) << "as without compression, bit for bit";
  EXPECT_EQ(h.cache().n_slots(0, 0), 10);
  h.Decode(weights);
  EXPECT_EQ(h.plans().size(), 1u);
}

TEST(EmsTest, SmallestBudget) {
  EXPECT_EQ(testing::Make(Ems())->traits().budget.min, 2);
  Harness h(testing::Make(Ems(), "window=2,gamma=1,tau=2"), {.budget = 3});
  for (int step = 0; step < 30; ++step) {
    h.Decode([](const Cell& cell) { return testing::Random({cell.rank, cell.position}); });
    EXPECT_LE(h.cache().n_slots(0, 0), 3);
  }
  EXPECT_EQ(h.Kept().size(), 3u);
}

TEST(EmsTest, ASmallerBudgetIsReachedInOneCall) {
  const auto method =
      std::make_shared<testing::UnderBudget>(testing::Make(Ems(), "window=4,gamma=2,tau=0.3"), 20);
  Harness h(method, {.budget = 20});
  h.SetKeys([](int, int, Position t) { return testing::RandomVector({t, 0}, 2); });
  h.SetValues([](int, int, Position t) { return testing::RandomVector({t, 1}, 2); });
  const Weights weights = [](const Cell& cell) {
    return testing::Random({cell.query, cell.position});
  };
  h.Prefill(80, weights);
  EXPECT_EQ(h.cache().n_rows(0, 0), 20);
  EXPECT_GT(h.cache().n_slots(0, 0), 20);
  method->budget = 7;
  h.Decode(weights);
  EXPECT_LE(h.cache().n_rows(0, 0), 7);
  EXPECT_LE(h.cache().n_slots(0, 0), 14);
}

// After evictions rows are not in order of age, so ties are broken by the oldest member.
TEST(EmsTest, OfEquallyImportantClassesTheOldestIsTaken) {
  std::vector<float> importance = {5, 2, 7, 2, 7, 3};
  std::vector<int32_t> oldest = {3, 5, 4, 1, 0, 2}, classes = {0, 1, 2, 3, 4, 5};
  ems::ClassTable table;
  table.importance = importance;
  table.oldest = oldest;
  table.classes = classes;
  ems::PopLeastImportant(table, 1);
  EXPECT_EQ(table.lowest, 3);  // rows 1 and 3 are the least important
  EXPECT_EQ(table.classes.size(), 5u);
  // Rows 2 and 4 are the most important: the older one is protected.
  EXPECT_EQ(std::vector<int32_t>(table.open.begin(), table.open.end()),
            (std::vector<int32_t>{0, 1, 2, 5}));
}

TEST(EmsTest, Positions) {
  EXPECT_EQ(testing::Make(Ems())->traits().storage.positions, PositionMode::kReassigned);
  EXPECT_EQ(testing::Make(Ems(), "positions=original")->traits().storage.positions,
            PositionMode::kText);
  EXPECT_EQ(testing::Make(Ems(), "positions=baked")->traits().storage.positions,
            PositionMode::kOriginal);
}

}  // namespace
}  // namespace winnow::compression::methods
