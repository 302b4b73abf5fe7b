#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

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

// Streams in calls of one and of several tokens against plain lists; two query heads per KV head.
TEST(H2oTest, AgreesWithPlainLists) {
  struct Entry {
    Position position;
    double sum;
  };
  for (const int64_t n_new : {1, 7}) {
    for (const int64_t sinks : {0, 2}) {
      Harness h(Make(methods::H2o(), "recent=5,sinks=" + std::to_string(sinks)),
                {.n_q_heads = 4, .n_kv_heads = 2, .budget = 12});
      std::vector<std::vector<Entry>> lists(2);
      for (int64_t seen = 0; seen < 280; seen += n_new) {
        const Weights weights = testing::RandomWeights(static_cast<uint64_t>(seen));
        h.Prefill(n_new, weights);
        for (int head = 0; head < 2; ++head) {
          std::vector<Entry>& list = lists[static_cast<size_t>(head)];
          for (int64_t query = 0; query < n_new; ++query) {
            list.push_back({static_cast<Position>(seen + query), 0});
            for (Entry& entry : list) {
              for (int q_head = 2 * head; q_head < 2 * head + 2; ++q_head) {
                entry.sum +=
                    weights({.q_head = q_head, .query = query, .position = entry.position}) / 2;
              }
            }
          }
          while (list.size() > 12) {
            list.erase(
                std::min_element(list.begin() + sinks, list.end() - 5,
                                 [](const Entry& a, const Entry& b) { return a.sum < b.sum; }));
          }
          Positions kept;
          for (const Entry& entry : list) kept.push_back(entry.position);
          ASSERT_EQ(h.Kept(0, head), kept) << "after " << seen + n_new;
        }
      }
    }
  }
}

}  // namespace
}  // namespace winnow::compression
