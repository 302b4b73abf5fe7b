#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "compression/methods/methods.h"
#include "compression/testing/harness.h"

namespace winnow::compression {
namespace {

using testing::ByPosition;
using testing::Harness;
using testing::LastQuery;
using testing::Make;
using testing::Weights;
using Positions = std::vector<Position>;

constexpr char kUnprotected[] = "sinks=0,recent=0,prefill=step";

// The paper counts tokens from 1: token t is position t - 1.
Positions Tokens(Positions tokens) {
  for (Position& token : tokens) --token;
  return tokens;
}

Positions KeptAfterStream(const std::string& parameters, int64_t budget,
                          const std::vector<double>& by_position) {
  Harness h(Make(methods::TreeKv(), parameters), {.budget = budget});
  for (size_t i = 0; i < by_position.size(); ++i) h.Decode(ByPosition(by_position));
  return h.Kept();
}

TEST(TreeKvTest, FollowsTheExampleOfThePaper) {
  const std::vector<double> w = {3, 20, 5, 7, 2, 8, 1, 6, 4, 10, 12, 11, 13, 15, 14, 16, 17};
  struct Step {
    Position evicted;
    Positions kept;
  };
  const std::vector<Step> steps = {
      {1, {2, 3, 4, 5}},     {3, {2, 4, 5, 6}},     {5, {2, 4, 6, 7}},     {7, {2, 4, 6, 8}},
      {4, {2, 6, 8, 9}},     {8, {2, 6, 9, 10}},    {9, {2, 6, 10, 11}},   {12, {2, 6, 10, 11}},
      {6, {2, 10, 11, 13}},  {10, {2, 11, 13, 14}}, {13, {2, 11, 14, 15}}, {15, {2, 11, 14, 16}},
      {11, {2, 14, 16, 17}},
  };
  Harness h(Make(methods::TreeKv(), kUnprotected), {.budget = 4});
  for (int token = 1; token <= 4; ++token) {
    h.Decode(ByPosition(w));
    EXPECT_TRUE(h.Evicted().empty());
  }
  for (const Step& step : steps) {
    h.Decode(ByPosition(w));
    EXPECT_EQ(h.Evicted(), Tokens({step.evicted}));
    EXPECT_EQ(h.Kept(), Tokens(step.kept));
  }
}

TEST(TreeKvTest, SelectLeftKeepsTheOlder) {
  const std::vector<double> w = {3, 20, 5, 7, 2, 8, 1, 6, 4, 10, 12, 11, 13, 15, 14, 16, 17};
  EXPECT_EQ(KeptAfterStream("sinks=0,recent=0,prefill=step,select_left=true", 4, w),
            Tokens({1, 13, 15, 17}));
}

TEST(TreeKvTest, LiteralPointerLeavesOutEveryOtherPair) {
  const std::vector<double> w = {3, 9, 5, 7, 2, 8, 1, 6, 4, 10, 12, 11, 13, 15, 14, 16, 17};
  EXPECT_EQ(KeptAfterStream(kUnprotected, 4, w), Tokens({11, 14, 16, 17}));
  EXPECT_EQ(KeptAfterStream("sinks=0,recent=0,prefill=step,cycle=literal", 4, w),
            Tokens({13, 14, 16, 17}));
}

// The number of queries in each entry's mean, oldest entry first.
std::vector<double> Counts(const Harness& h) {
  std::vector<double> counts = h.Column(1);
  for (double& count : counts) count = h.cache().layer_numbers(0)[0] - count;
  return counts;
}

TEST(TreeKvTest, ComparesMeansOverTheStepsAnEntryLived) {
  Harness h(Make(methods::TreeKv(), kUnprotected), {.budget = 3});
  h.Decode({1});
  h.Decode({.6, .4});
  h.Decode({.5, .2, .3});
  h.Decode({.4, .1, .2, .3});
  EXPECT_EQ(h.Evicted(), Positions{1});
  h.Decode({.3, .3, .1, .3});
  EXPECT_EQ(h.Evicted(), Positions{3});
  h.Decode({.25, .25, .3, .2});
  EXPECT_EQ(h.Evicted(), Positions{5});
  EXPECT_EQ(h.Kept(), (Positions{0, 2, 4}));
  const std::vector<double> sums = h.Column(0);
  ASSERT_EQ(sums.size(), 3u);
  EXPECT_NEAR(sums[0], 3.05, 1e-6);
  EXPECT_NEAR(sums[1], 1.05, 1e-6);
  EXPECT_NEAR(sums[2], 0.6, 1e-6);
  EXPECT_EQ(Counts(h), (std::vector<double>{6, 4, 2}));
}

TEST(TreeKvTest, CriteriaWeighNeighboursDifferently) {
  const auto evicted = [](const std::string& criterion, double first) {
    Harness h(Make(methods::TreeKv(), std::string(kUnprotected) + ",criterion=" + criterion),
              {.budget = 2});
    h.Decode({first});
    h.Decode({.1, .5});
    h.Decode({.1, .25, .5});
    return h.Evicted();
  };
  // 1.1 / 3 < 0.75 / 2, but 1.1 > 0.75.
  EXPECT_EQ(evicted("mean", .9), Positions{0});
  EXPECT_EQ(evicted("accumulated", .9), Positions{1});
  // 1.2 / 3 > 0.75 / 2, but (1 + 0.2 + 0.3) / 3 < (1 + 0.75) / 2.
  EXPECT_EQ(evicted("mean", 1), Positions{1});
  EXPECT_EQ(evicted("position", 1), Positions{0});
}

TEST(TreeKvTest, PositionCriterionOfAChunkTakesTheMeanOfWhatItsQueriesSaw) {
  Harness h(Make(methods::TreeKv(), std::string(kUnprotected) + ",criterion=position"),
            {.budget = 8});
  h.Decode({1});
  h.Prefill(2, testing::ByPosition({.5, .25, 2}));
  // Queries that see 2 and 3 entries; only the second sees the newest entry.
  EXPECT_EQ(h.Column(0), (std::vector<double>{1 + 1 * 2.5, .5 * 2.5, 2 * 3}));
}

TEST(TreeKvTest, ActsBetweenSinksAndRecent) {
  const std::vector<double> w = {100, 5, 4, 9, 8, 1, 7, 3, 6, 2, 11, 10};
  Harness h(Make(methods::TreeKv(), "sinks=1,recent=2,prefill=step"), {.budget = 6});
  Positions evicted;
  for (size_t i = 0; i < w.size(); ++i) {
    h.Decode(ByPosition(w));
    for (const Position position : h.Evicted()) evicted.push_back(position);
  }
  EXPECT_EQ(evicted, (Positions{2, 4, 5, 1, 7, 9}));
  EXPECT_EQ(h.Kept(), (Positions{0, 3, 6, 8, 10, 11}));
}

TEST(TreeKvTest, PromptsGoBlockByBlock) {
  // Blocks of two tokens with these means; the last block is the window.
  const std::vector<double> means = {9, 1, 5, 2, 8, 7, 3, 6};
  std::vector<double> row;
  for (const double mean : means) {
    row.push_back(mean + 0.5);
    row.push_back(mean - 0.5);
  }
  row.insert(row.end(), {100, 100});
  const auto kept = [&](const std::string& parameters) {
    Harness h(Make(methods::TreeKv(), parameters), {.budget = 2 * 3 + 2});
    h.Prefill(18, LastQuery(row, 18));
    return h.Kept();
  };
  EXPECT_EQ(kept("block=2"), (Positions{0, 1, 8, 9, 14, 15, 16, 17}));
  EXPECT_EQ(kept("block=2,cycle=literal"), (Positions{0, 1, 10, 11, 14, 15, 16, 17}));
}

TEST(TreeKvTest, ShortLastBlockGoesAsAWhole) {
  // Blocks [0,2) [2,4) [4,5) before the window [5,7): the budget has room for one.
  const auto kept = [](double last) {
    Harness h(Make(methods::TreeKv(), "block=2"), {.budget = 5});
    h.Prefill(7, LastQuery({1, 1, 3, 3, last, 9, 9}, 7));
    return h.Kept();
  };
  EXPECT_EQ(kept(4), (Positions{4, 5, 6}));
  EXPECT_EQ(kept(2), (Positions{2, 3, 5, 6}));
}

TEST(TreeKvTest, WindowOfThePromptStartsTheMeans) {
  // Two rows in the window: the first sees four entries, the second five.
  const Weights weights = [](const testing::Cell& cell) {
    const double first[] = {.1, .2, .3, .4};
    const double second[] = {.1, .1, .2, .2, .4};
    if (cell.query == 3) return first[cell.rank];
    return cell.query == 4 ? second[cell.rank] : 9.0;
  };
  Harness h(Make(methods::TreeKv(), "block=2"), {.budget = 6});
  h.Prefill(5, weights);
  const std::vector<double> sums = h.Column(0);
  const std::vector<double> expected = {.2, .3, .5, .6, .4};
  ASSERT_EQ(sums.size(), expected.size());
  for (size_t i = 0; i < sums.size(); ++i) EXPECT_NEAR(sums[i], expected[i], 1e-6);
  EXPECT_EQ(Counts(h), (std::vector<double>{2, 2, 2, 2, 1}));
}

TEST(TreeKvTest, KeepsRecentHalfByDefault) {
  const MethodPtr method = Make(methods::TreeKv());
  EXPECT_EQ(method->traits().budget.min, 5);  // the sinks and one more
  EXPECT_EQ(method->traits().storage.positions, PositionMode::kReassigned);
  // 16 slots: 4 sinks, 8 in the tree, 4 recent.
  Harness h(Make(methods::TreeKv(), "prefill=step"), {.budget = 16});
  std::vector<double> w(40, 1);
  for (int i = 0; i < 40; ++i) w[static_cast<size_t>(i)] = 40 - i;
  for (int i = 0; i < 40; ++i) h.Decode(ByPosition(w));
  const Positions kept = h.Kept();
  EXPECT_EQ(Positions(kept.begin(), kept.begin() + 4), (Positions{0, 1, 2, 3}));
  EXPECT_EQ(Positions(kept.end() - 4, kept.end()), (Positions{36, 37, 38, 39}));
}

TEST(TreeKvTest, ChunksOfOneAreSteps) {
  Harness steps(Make(methods::TreeKv(), "prefill=step,sinks=1,recent=2"), {.budget = 8});
  Harness chunks(Make(methods::TreeKv(), "prefill=step,sinks=1,recent=2"), {.budget = 8});
  for (uint64_t i = 0; i < 100; ++i) {
    steps.Decode(testing::RandomWeights(i));
    chunks.Prefill(1, testing::RandomWeights(i));
    ASSERT_EQ(steps.plans(), chunks.plans());
  }
}

TEST(TreeKvTest, DecodesAfterABlockPrefillAtTheBudget) {
  Harness h(Make(methods::TreeKv(), "block=4,sinks=2,recent=6"), {.budget = 18});
  h.Prefill(61, testing::RandomWeights(5));
  EXPECT_LE(h.Kept().size(), 18u);
  const Positions kept = h.Kept();
  EXPECT_EQ(Positions(kept.end() - 4, kept.end()), (Positions{57, 58, 59, 60}));
  for (uint64_t i = 0; i < 200; ++i) {
    const Positions before = h.Kept();
    h.Decode(testing::RandomWeights(100 + i));
    const Positions now = h.Kept();
    EXPECT_LE(now.size(), 18u);
    EXPECT_EQ(Positions(now.begin(), now.begin() + 2),
              Positions(before.begin(), before.begin() + 2));
    EXPECT_EQ(now.back(), static_cast<Position>(61 + i));
    EXPECT_LE(h.Evicted().size(), 1u);
  }
  EXPECT_EQ(h.Kept().size(), 18u);
}

}  // namespace
}  // namespace winnow::compression
