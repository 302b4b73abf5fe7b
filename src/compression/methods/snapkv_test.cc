#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <string>
#include <vector>

#include "base/rng.h"
#include "compression/methods/methods.h"
#include "compression/testing/harness.h"
#include "compression/testing/plain_window.h"

namespace winnow::compression {
namespace {

using testing::Harness;
using testing::LastQuery;
using testing::Make;
using testing::Weights;
using Positions = std::vector<Position>;

// Kept positions of a prompt whose prefix has these window sums; the window is 1.
Positions KeptPositions(std::vector<double> row, const std::string& parameters, int64_t budget) {
  row.push_back(0);
  Harness h(Make(methods::SnapKv(), "window=1," + parameters), {.budget = budget});
  const auto n = static_cast<int64_t>(row.size());
  h.Prefill(n, LastQuery(row, n));
  return h.Kept();
}

TEST(SnapKvTest, MaximaTieAndTheNewestWins) {
  EXPECT_EQ(KeptPositions({1, 0, 3, 2, 0, 5}, "kernel=3", 4), (Positions{3, 4, 5, 6}));
  EXPECT_EQ(KeptPositions({1, 3, 3, 2, 3, 0}, "pool=none", 3), (Positions{2, 4, 6}));
}

TEST(SnapKvTest, AveragesCountZerosBeyondTheEnds) {
  // 1/3 4/3 5/3 5/3 7/3 5/3
  EXPECT_EQ(KeptPositions({1, 0, 3, 2, 0, 5}, "pool=average,kernel=3", 3), (Positions{4, 5, 6}));
  EXPECT_EQ(KeptPositions({1, 0, 3, 2, 0, 5}, "pool=average,kernel=3", 6),
            (Positions{1, 2, 3, 4, 5, 6}));
}

TEST(SnapKvTest, EqualWeightsKeepTheNewest) {
  Harness h(Make(methods::SnapKv(), "window=4,pool=none"), {.budget = 10});
  h.Prefill(30, [](const testing::Cell&) { return 0.25; });
  Positions newest(10);
  std::iota(newest.begin(), newest.end(), 20);
  EXPECT_EQ(h.Kept(), newest);
}

TEST(SnapKvTest, GrowsWhileGenerating) {
  Harness h(Make(methods::SnapKv()), {.budget = 40});
  h.Prefill(100, testing::RandomWeights(1));
  EXPECT_EQ(h.Kept().size(), 40u);
  for (int i = 0; i < 5; ++i) h.Decode(testing::RandomWeights(2));
  EXPECT_EQ(h.Kept().size(), 45u);
}

TEST(SnapKvTest, RefusesAnEvenKernel) {
  const Result<Spec> spec = ParseSpec("snapkv:kernel=4");
  EXPECT_EQ(methods::SnapKv().make(*spec).error().message,
            "snapkv: kernel: found '4', expected an odd integer from 1 to 1023");
}

// Prompts, whole and in chunks, of random lengths; every option.
TEST(SnapKvTest, AgreesWithPlainLoops) {
  for (uint64_t seed = 0; seed < 400; ++seed) {
    Rng rng(seed);
    const auto draw = [&](uint64_t n) { return static_cast<int>(rng.Below(n)); };
    testing::PlainWindow plain;
    plain.window = 1 + draw(10);
    plain.pool = std::vector{"none", "average", "max"}[static_cast<size_t>(draw(3))];
    plain.kernel = 1 + 2 * draw(4);
    plain.reduce = std::vector{"mean", "max", "sum"}[static_cast<size_t>(draw(3))];
    plain.prefix_softmax = draw(3) == 0;
    const int64_t budget = 1 + draw(40);
    const int n_calls = seed % 2 == 0 ? 1 : 2 + draw(6);
    const bool per_query_head = draw(4) == 0;
    const int n_kv_heads = 1 + draw(2), group = 1 << draw(3);
    Harness h(Make(methods::SnapKv(),
                   plain.Parameters() + (per_query_head ? ",heads=query" : ",heads=kv")),
              {.n_layers = 2,
               .n_q_heads = n_kv_heads * group,
               .n_kv_heads = n_kv_heads,
               .budget = budget});
    const int n_heads = per_query_head ? n_kv_heads * group : n_kv_heads;
    std::vector<Positions> lists(static_cast<size_t>(2 * n_heads));
    for (int call = 0; call < n_calls; ++call) {
      const int64_t n = 1 + draw(n_calls == 1 ? 90 : 25);
      const Position first = static_cast<Position>(h.n_seen());
      const Weights weights = testing::RandomWeights(1000 * seed + static_cast<uint64_t>(call));
      h.Prefill(n, weights);
      for (int head = 0; head < 2 * n_heads; ++head) {
        Positions& entries = lists[static_cast<size_t>(head)];
        for (Position i = 0; i < n; ++i) entries.push_back(first + i);
        const std::vector<double> scores =
            plain.Scores(entries, n, budget, {head % n_heads, per_query_head ? 1 : group},
                         [&](int q_head, int64_t query, Position position) {
                           return weights({.layer = head / n_heads,
                                           .q_head = q_head,
                                           .query = query,
                                           .position = position});
                         });
        if (std::ssize(entries) > budget) {
          Positions kept(entries.begin() + std::ssize(scores), entries.end());
          const std::vector<int64_t> order = testing::BestFirst(scores);
          for (int64_t i = 0; i < budget - plain.Under(budget); ++i) {
            kept.push_back(entries[static_cast<size_t>(order[static_cast<size_t>(i)])]);
          }
          std::sort(kept.begin(), kept.end());
          entries = kept;
        }
        ASSERT_EQ(h.Kept(head / n_heads, head % n_heads), entries)
            << plain.Parameters() << ", budget " << budget << ", seed " << seed;
      }
    }
  }
}

}  // namespace
}  // namespace winnow::compression
