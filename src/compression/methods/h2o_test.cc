#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/rng.h"
#include "compression/methods/methods.h"
#include "compression/testing/harness.h"

namespace winnow::compression {
namespace {

using testing::Harness;
using testing::LastQuery;
using testing::Make;
using testing::Weights;
using Positions = std::vector<Position>;

TEST(H2oTest, KeepsTheHeaviestAndTheNewest) {
  Harness h(Make(methods::H2o()), {.budget = 4});
  h.Prefill(6, LastQuery({3, .5, 1, .7, .5, .3}, 6));
  EXPECT_EQ(h.Kept(), (Positions{0, 2, 4, 5}));
  h.Decode({.4, .1, .2, .1, .2});
  EXPECT_EQ(h.Evicted(), (Positions{4}));
  EXPECT_EQ(h.Kept(), (Positions{0, 2, 5, 6}));
  const std::vector<double> expected = {3.4, 1.1, .4, .2};
  for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(h.Column(0)[i], expected[i], 1e-12);
}

TEST(H2oTest, MayGrowWhileGenerating) {
  Harness h(Make(methods::H2o(), "decode=false"), {.budget = 4});
  h.Prefill(6, testing::RandomWeights(1));
  h.Decode(testing::RandomWeights(2));
  EXPECT_EQ(h.Kept().size(), 5u);
}

TEST(H2oTest, HoldsTheSmallestBudget) {
  for (const int sinks : {0, 1, 4}) {
    const MethodPtr method = Make(methods::H2o(), "sinks=" + std::to_string(sinks));
    const int64_t budget = method->traits().budget.min;
    Harness h(method, {.budget = budget});
    for (uint64_t i = 0; i < 30; ++i) h.Decode(testing::RandomWeights(i));
    EXPECT_EQ(static_cast<int64_t>(h.Kept().size()), budget);
  }
}

// A prompt, then a stream in steps or in chunks, against plain lists; every option.
TEST(H2oTest, AgreesWithPlainLists) {
  struct Entry {
    Position position;
    double sum;
  };
  for (uint64_t seed = 0; seed < 80; ++seed) {
    Rng rng(seed);
    const auto draw = [&](uint64_t n) { return static_cast<int>(rng.Below(n)); };
    const int n_kv_heads = 1 + draw(2), group = 1 << draw(3);
    const bool per_query_head = draw(4) == 0;
    const std::string reduce = std::vector{"mean", "max", "sum"}[static_cast<size_t>(draw(3))];
    const int64_t sinks = draw(4), count = draw(8);
    const bool by_default = draw(2) == 0;  // half of the budget, sinks included
    const int64_t budget = sinks + (by_default ? 1 : count + 1) + draw(20);
    const int64_t recent = by_default ? std::max<int64_t>(0, budget / 2 - sinks) : count;
    std::string parameters = "sinks=" + std::to_string(sinks) + ",reduce=" + reduce;
    if (!by_default) parameters += ",recent=" + std::to_string(count);
    if (per_query_head) parameters += ",heads=query";
    Harness h(Make(methods::H2o(), parameters), {.n_layers = 2,
                                                 .n_q_heads = n_kv_heads * group,
                                                 .n_kv_heads = n_kv_heads,
                                                 .budget = budget});
    const int n_heads = per_query_head ? n_kv_heads * group : n_kv_heads;
    const int of_head = per_query_head ? 1 : group;
    std::vector<std::vector<Entry>> lists(static_cast<size_t>(2 * n_heads));
    const bool chunks = draw(2) == 0;
    for (int call = 0; call < 60; ++call) {
      const int64_t n_new = call == 0 ? 1 + draw(70) : chunks ? 1 + draw(12) : 1;
      const auto seen = static_cast<Position>(h.n_seen());
      const Weights weights = testing::RandomWeights(1000 * seed + static_cast<uint64_t>(call));
      call == 0 || chunks ? h.Prefill(n_new, weights) : h.Decode(weights);
      for (int head = 0; head < 2 * n_heads; ++head) {
        std::vector<Entry>& list = lists[static_cast<size_t>(head)];
        for (int64_t query = 0; query < n_new; ++query) {
          list.push_back({static_cast<Position>(seen + query), 0});
          for (Entry& entry : list) {
            double sum = 0, max = 0;
            for (int i = 0; i < of_head; ++i) {
              const double weight = weights({.layer = head / n_heads,
                                             .q_head = head % n_heads * of_head + i,
                                             .query = query,
                                             .position = entry.position});
              sum += weight;
              max = std::max(max, weight);
            }
            entry.sum += reduce == "max" ? max : reduce == "sum" ? sum : sum / of_head;
          }
        }
        while (std::ssize(list) > budget) {
          list.erase(
              std::min_element(list.begin() + sinks, list.end() - recent,
                               [](const Entry& a, const Entry& b) { return a.sum < b.sum; }));
        }
        Positions kept;
        for (const Entry& entry : list) kept.push_back(entry.position);
        ASSERT_EQ(h.Kept(head / n_heads, head % n_heads), kept)
            << parameters << ", budget " << budget << ", seed " << seed << ", call " << call;
      }
    }
  }
}

}  // namespace
}  // namespace winnow::compression
