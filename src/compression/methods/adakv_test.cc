#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "compression/methods/methods.h"
#include "compression/testing/harness.h"

namespace winnow::compression {
namespace {

using testing::Cell;
using testing::Harness;
using testing::Make;
using testing::Weights;
using Positions = std::vector<Position>;

TEST(AdaKvTest, HeadsCompeteForWhatIsNotReserved) {
  const Weights weights = [](const Cell& cell) {
    const std::vector<double> rows[] = {{.9, .8, .7, .6, .1, .05, 0},
                                        {.5, .2, .1, .05, .02, .01, 0}};
    return cell.query == 6 ? rows[cell.q_head][static_cast<size_t>(cell.rank)] : 0;
  };
  Harness h(Make(methods::AdaKv(), "window=1,pool=none,alpha=0.34"),
            {.n_q_heads = 2, .n_kv_heads = 2, .budget = 4});
  h.Prefill(7, weights);
  EXPECT_EQ(h.Kept(0, 0), (Positions{0, 1, 2, 3, 6}));
  EXPECT_EQ(h.Kept(0, 1), (Positions{0, 1, 6}));
}

TEST(AdaKvTest, ReservedEntriesAreKeptAgainstBetterHeads) {
  const Weights weights = [](const Cell& cell) {
    if (cell.query != 19) return 0.0;
    return cell.q_head == 0 ? 10.0 + cell.rank : 0.1 * cell.rank;
  };
  Harness h(Make(methods::AdaKv(), "window=2,pool=none,alpha=0.5"),
            {.n_q_heads = 2, .n_kv_heads = 2, .budget = 8});
  h.Prefill(20, weights);
  EXPECT_EQ(h.Kept(0, 0).size(), 6u + 6 / 2 + 2);  // 6 won, 3 reserved, the window
  EXPECT_EQ(h.Kept(0, 1), (Positions{15, 16, 17, 18, 19}));
}

// The six best of both heads include five of the first head: 0.66 * 5 + 1 = 4.3 and 0.66 * 1 + 1 =
// 1.66, which are rounded to 4 and 2.
TEST(AdaKvTest, AuthorsFormBlendsCounts) {
  const Weights weights = [](const Cell& cell) {
    const std::vector<double> rows[] = {{.9, .8, .7, .6, .55, .05, 0},
                                        {.5, .2, .1, .05, .02, .01, 0}};
    return cell.query == 6 ? rows[cell.q_head][static_cast<size_t>(cell.rank)] : 0;
  };
  const auto sizes = [&](const std::string& more) {
    Harness h(Make(methods::AdaKv(), "window=1,pool=none," + more),
              {.n_q_heads = 2, .n_kv_heads = 2, .budget = 4});
    h.Prefill(7, weights);
    return std::pair(h.Kept(0, 0).size() - 1, h.Kept(0, 1).size() - 1);
  };
  EXPECT_EQ(sizes("alpha=0.34,form=reserve"), std::pair(size_t{5}, size_t{1}));
  EXPECT_EQ(sizes("alpha=0.34,form=blend"), std::pair(size_t{4}, size_t{2}));
  EXPECT_EQ(sizes("alpha=0,form=blend"), std::pair(size_t{5}, size_t{1}));
  EXPECT_EQ(sizes("alpha=1,form=blend"), std::pair(size_t{3}, size_t{3}));
}

// The best two entries hold 0.9 of the second head's weights and 0.4 of the first head's.
TEST(AdaKvTest, ConcentratedHeadsWeighMore) {
  const Weights weights = [](const Cell& cell) {
    const std::vector<double> rows[] = {{.20, .20, .20, .20, .20, 0}, {.45, .45, .10, 0, 0, 0}};
    return cell.query == 5 ? rows[cell.q_head][static_cast<size_t>(cell.rank)] : 0;
  };
  const auto kept = [&](const std::string& more) {
    Harness h(Make(methods::AdaKv(), "window=1,pool=none,alpha=0" + more),
              {.n_q_heads = 2, .n_kv_heads = 2, .budget = 3});
    h.Prefill(6, weights);
    return std::pair(h.Kept(0, 0), h.Kept(0, 1));
  };
  EXPECT_EQ(kept(""), std::pair(Positions({3, 4, 5}), Positions({0, 1, 5})));
  // .2 * .4 against .1 * .9: the third entry of the second head is next.
  EXPECT_EQ(kept(",by_mass=true"), std::pair(Positions({4, 5}), Positions({0, 1, 2, 5})));
}

// The sizes add up to the layer's budget whatever the scores, and each head keeps its best entries.
TEST(AdaKvTest, UsesTheBudgetOfTheLayerExactly) {
  for (uint64_t seed = 0; seed < 200; ++seed) {
    const int64_t n = 30 + static_cast<int64_t>(seed % 17);
    const int64_t budget = 5 + static_cast<int64_t>(seed % 23);
    const char* form = seed % 2 == 0 ? "reserve" : "blend";
    Harness h(Make(methods::AdaKv(), "window=4,pool=none,form=" + std::string(form)),
              {.n_q_heads = 6, .n_kv_heads = 3, .budget = budget});
    const Weights weights = testing::RandomWeights(seed);
    h.Prefill(n, weights);
    int64_t sum = 0;
    for (int kv_head = 0; kv_head < 3; ++kv_head) {
      const Positions kept = h.Kept(0, kv_head);
      sum += static_cast<int64_t>(kept.size());
      const auto score = [&](Position j) {
        double total = 0;
        for (int64_t i = n - 4; i < n; ++i) {
          for (int q_head = 2 * kv_head; q_head < 2 * kv_head + 2; ++q_head) {
            total += weights({.q_head = q_head, .query = i, .rank = j, .position = j});
          }
        }
        return total;
      };
      double worst_kept = 1e9;
      for (const Position j : kept) {
        if (j < n - 4) worst_kept = std::min(worst_kept, score(j));
      }
      for (const Position j : h.Evicted(0, kv_head)) EXPECT_LE(score(j), worst_kept);
    }
    EXPECT_EQ(sum, std::min(n, budget) * 3) << "seed " << seed;
  }
}

}  // namespace
}  // namespace winnow::compression
