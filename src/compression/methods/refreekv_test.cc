#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "compression/methods/methods.h"
#include "compression/testing/harness.h"

namespace winnow::compression {
namespace {

using testing::Cell;
using testing::Harness;
using testing::LastQuery;
using testing::Make;
using testing::Weights;
using Positions = std::vector<Position>;

const std::vector<double> kFirst = {.50, .10, .02, .08, .02, .04, .04, .20};
const std::vector<double> kSecond = {.3, .1, .3, .05, .05, .05, .05, .1};

Positions KeptPositions(const std::string& parameters, const std::vector<double>& row,
                        int64_t budget = 0) {
  Harness h(Make(methods::ReFreeKv(), "sinks=2,whole_layers=0," + parameters), {.budget = budget});
  const auto n = static_cast<int64_t>(row.size());
  h.Prefill(n, LastQuery(row, n));
  return h.Kept();
}

TEST(ReFreeKvTest, KeepsAsManyOfTheNewestAsTheNormAsksFor) {
  EXPECT_EQ(KeptPositions("threshold=0.01", kFirst), (Positions{0, 1, 3, 4, 5, 6, 7}));
  EXPECT_EQ(KeptPositions("threshold=0.1", kFirst), (Positions{0, 1, 6, 7}));
  // Around every loss of the example: with a threshold just below it one more entry is needed.
  const std::vector<double> losses = {.109129, .091486, .074180, .069904, .003976};
  for (size_t i = 0; i < losses.size(); ++i) {
    const size_t r = i + 1;
    EXPECT_EQ(KeptPositions("threshold=" + std::to_string(losses[i] + 2e-6), kFirst).size(), 2 + r);
    EXPECT_EQ(KeptPositions("threshold=" + std::to_string(losses[i] - 2e-6), kFirst).size(), 3 + r);
  }
}

TEST(ReFreeKvTest, FirstTokensMayTakePartInTheNorm) {
  EXPECT_EQ(KeptPositions("threshold=0.05,include_first=true", kFirst), (Positions{0, 1, 7}));
  EXPECT_EQ(KeptPositions("threshold=0.05", kFirst), (Positions{0, 1, 3, 4, 5, 6, 7}));
  const std::vector<double> losses = {.016895, .014277, .011666, .011014, .000645};
  for (size_t i = 0; i < losses.size(); ++i) {
    const std::string first = "include_first=true,threshold=";
    EXPECT_EQ(KeptPositions(first + std::to_string(losses[i] + 2e-6), kFirst).size(), 3 + i);
    EXPECT_EQ(KeptPositions(first + std::to_string(losses[i] - 2e-6), kFirst).size(), 4 + i);
  }
}

TEST(ReFreeKvTest, OneLengthForTheLayerOrOnePerHead) {
  const Weights weights = [](const Cell& cell) {
    const std::vector<double>& row = cell.q_head == 0 ? kFirst : kSecond;
    return cell.query == 7 ? row[static_cast<size_t>(cell.rank)] : 0;
  };
  const auto kept = [&](const std::string& parameters, int kv_head) {
    Harness h(Make(methods::ReFreeKv(), "sinks=2,whole_layers=0,threshold=0.2," + parameters),
              {.n_q_heads = 2, .n_kv_heads = 2});
    h.Prefill(8, weights);
    return h.Kept(0, kv_head);
  };
  EXPECT_EQ(kept("per_head=false", 0).size(), 8u);
  EXPECT_EQ(kept("per_head=false", 1).size(), 8u);
  EXPECT_EQ(kept("per_head=true", 0), (Positions{0, 1, 7}));
  EXPECT_EQ(kept("per_head=true", 1).size(), 8u);
  // Norms, not rows, are averaged over the query heads: the result is the same with both heads in
  // one group.
  Harness h(Make(methods::ReFreeKv(), "sinks=2,whole_layers=0,threshold=0.2"),
            {.n_q_heads = 2, .n_kv_heads = 1});
  h.Prefill(8, weights);
  EXPECT_EQ(h.Kept().size(), 8u);
}

TEST(ReFreeKvTest, ThresholdZeroKeepsAllThatIsAttended) {
  EXPECT_EQ(KeptPositions("threshold=0", {.5, .1, 0, 0, 1e-12, .1, 0, .2}),
            (Positions{0, 1, 4, 5, 6, 7}));
  // Without attention beyond the first tokens there is no norm to compare with: all entries stay.
  EXPECT_EQ(KeptPositions("threshold=0.01", {.5, .5, 0, 0, 0}).size(), 5u);
}

TEST(ReFreeKvTest, FirstLayersAndShortPromptsStayWhole) {
  Harness h(Make(methods::ReFreeKv(), "sinks=2,threshold=0.9"), {.n_layers = 4});
  h.Prefill(8, LastQuery(kFirst, 8));
  EXPECT_EQ(h.Kept(0).size(), 8u);
  EXPECT_EQ(h.Kept(1).size(), 8u);
  EXPECT_EQ(h.Kept(2).size(), 3u);
  EXPECT_EQ(h.Kept(3).size(), 3u);
  EXPECT_EQ(KeptPositions("threshold=1", {.2, .2, .6}).size(), 3u);
  EXPECT_EQ(KeptPositions("threshold=1", {.2, .2, .1, .5}).size(), 3u);
}

TEST(ReFreeKvTest, ABudgetIsALimit) {
  EXPECT_EQ(KeptPositions("threshold=0.01", kFirst, 5), (Positions{0, 1, 5, 6, 7}));
  EXPECT_EQ(KeptPositions("threshold=0.1", kFirst, 5), (Positions{0, 1, 6, 7}));
  EXPECT_FALSE(Make(methods::ReFreeKv())->traits().budget.needed);
  EXPECT_EQ(Make(methods::ReFreeKv())->MaxSlots(0, 1000), 1000);
  EXPECT_EQ(Make(methods::ReFreeKv())->MaxSlots(100, 1000), 100);
}

TEST(ReFreeKvTest, AttentionRankingKeepsTheMostAttended) {
  // Ranked .20 .08 .04 .04 .02 .02: norms .2, .215407, .219089 of .224499.
  EXPECT_EQ(KeptPositions("threshold=0.05,ranking=attention", kFirst), (Positions{0, 1, 3, 7}));
  EXPECT_EQ(KeptPositions("threshold=0.03,ranking=attention", kFirst), (Positions{0, 1, 3, 6, 7}));
}

TEST(ReFreeKvTest, QueriesAsAShareOfThePrompt) {
  const auto kept = [](const std::string& parameters, int64_t n) {
    Harness h(Make(methods::ReFreeKv(), "whole_layers=0,threshold=0.2," + parameters), {});
    h.Prefill(n, testing::RandomWeights(9));
    return h.Kept();
  };
  EXPECT_EQ(kept("queries_share=0.1", 50), kept("queries=5", 50));
  EXPECT_EQ(kept("queries_share=0.1", 59), kept("queries=5", 59));
  EXPECT_EQ(kept("queries_share=0.01", 50), kept("queries=1", 50));
  EXPECT_EQ(kept("queries_share=1", 600), kept("queries=600", 600));
  EXPECT_NE(kept("queries_share=1", 50), kept("queries=1", 50));
}

// A share may come to more than 512 queries: here only the oldest 88 of 600 attend to the oldest
// entries.
TEST(ReFreeKvTest, NoShareIsTooLarge) {
  const auto n_kept = [](const std::string& parameters) {
    Harness h(Make(methods::ReFreeKv(), "whole_layers=0,threshold=0.05," + parameters), {});
    h.Prefill(600, [](const Cell& cell) { return cell.query < 88 ? 1.0 : .01; });
    return h.Kept().size();
  };
  EXPECT_LT(n_kept("queries=512"), 560u);
  EXPECT_GT(n_kept("queries_share=1"), 560u);
}

TEST(ReFreeKvTest, AttentionRankingGoesByTheSameRowsAsTheNorm) {
  const auto kept = [](const std::string& parameters) {
    Harness h(
        Make(methods::ReFreeKv(), "whole_layers=0,threshold=0.2,ranking=attention," + parameters),
        {.n_q_heads = 4, .n_kv_heads = 2});
    h.Prefill(100, testing::RandomWeights(3));
    return h.Kept();
  };
  EXPECT_EQ(kept("queries_share=0.1"), kept("queries=10"));
  EXPECT_NE(kept("queries_share=0.1"), kept("queries=1"));
}

TEST(ReFreeKvTest, GrowsWhileGenerating) {
  Harness h(Make(methods::ReFreeKv(), "sinks=2,whole_layers=0,threshold=0.1"), {});
  h.Prefill(8, LastQuery(kFirst, 8));
  for (int i = 0; i < 10; ++i) h.Decode(testing::RandomWeights(1));
  EXPECT_EQ(h.Kept().size(), 14u);
}

}  // namespace
}  // namespace winnow::compression
