#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/rng.h"
#include "compression/methods/methods.h"
#include "compression/testing/harness.h"
#include "compression/testing/random.h"

namespace winnow::compression::methods {
namespace {

using testing::Cell;
using testing::Harness;
using Positions = std::vector<Position>;

const testing::Weights kNothing = [](const Cell&) { return 0.0; };

// The example of docs/methods/semantics.md#tova: 1 and 3 tie for the lowest weight; the older one
// goes.
TEST(TovaTest, TheLeastAttendedGoes) {
  const std::vector<double> row = {.3, .05, .2, .05, .4};
  Harness step(testing::Make(Tova()), {.budget = 4});
  step.Prefill(4, kNothing);
  step.Decode(row);
  EXPECT_EQ(step.Kept(), (std::vector<Position>{0, 2, 3, 4}));

  Harness prompt(testing::Make(Tova()), {.budget = 4});
  prompt.Prefill(5, testing::LastQuery(row, 5));
  EXPECT_EQ(prompt.Kept(), (std::vector<Position>{0, 2, 3, 4}));
}

TEST(TovaTest, TheNewestIsACandidateToo) {
  Harness h(testing::Make(Tova()), {.budget = 3});
  h.Prefill(3, kNothing);
  h.Decode({.3, .3, .3, .1});
  EXPECT_EQ(h.Kept(), (std::vector<Position>{0, 1, 2}));
}

TEST(TovaTest, ProtectedRegions) {
  Harness h(testing::Make(Tova(), "sinks=1,recent=2"), {.budget = 4});
  h.Prefill(4, kNothing);
  h.Decode({.0, .3, .2, .1, .0});
  EXPECT_EQ(h.Kept(), (std::vector<Position>{0, 1, 3, 4}));
}

// One vote of all query heads and one kept set; or one of each per KV head.
TEST(TovaTest, TheLayerVotesTogether) {
  const std::vector<std::vector<double>> rows = {
      {.1, .5, .4, .0}, {.1, .5, .4, .0}, {.6, .0, .1, .3}, {.6, .1, .0, .3}};
  const auto weights = [&](const Cell& cell) {
    return cell.rank < 4 ? rows[static_cast<size_t>(cell.q_head)][static_cast<size_t>(cell.rank)]
                         : 0;
  };
  for (const bool per_layer : {true, false}) {
    Harness h(testing::Make(Tova(), per_layer ? "" : "per_layer=false"),
              {.n_q_heads = 4, .n_kv_heads = 2, .budget = 3});
    h.Prefill(3, kNothing);
    h.Decode(weights);
    // Sums: 1.4, 1.1, .9, .6; of the first KV head .2, 1, .8, 0; of the second 1.2, .1, .1, .6.
    EXPECT_EQ(h.Kept(0, 0), (Positions{0, 1, 2}));
    EXPECT_EQ(h.Kept(0, 1), per_layer ? (Positions{0, 1, 2}) : (Positions{0, 2, 3}));
  }
}

// Invariant 6 (docs/methods/semantics.md#invariants).
TEST(TovaTest, UniformAttentionEvictsTheOldest) {
  Harness h(testing::Make(Tova()), {.budget = 5});
  for (Position t = 0; t < 20; ++t) {
    h.Decode([](const Cell&) { return 0.125; });
    EXPECT_EQ(h.Evicted(), t < 5 ? std::vector<Position>() : std::vector<Position>{t - 5});
  }
}

// A prompt, steps and chunks; with and without regions, the vote of the layer or of each KV head.
TEST(TovaTest, AgreesWithPlainLoops) {
  for (uint64_t seed = 0; seed < 60 && !HasFatalFailure(); ++seed) {
    Rng rng(seed);
    const auto draw = [&](uint64_t n) { return static_cast<int>(rng.Below(n)); };
    const int n_kv_heads = 1 + draw(3), group = 1 + draw(4);
    const bool per_layer = draw(3) > 0, max = draw(3) == 0;
    const int64_t sinks = draw(2) * draw(4), recent = draw(2) * draw(5);
    const int64_t budget = sinks + recent + 1 + draw(20);
    const std::string parameters =
        "sinks=" + std::to_string(sinks) + ",recent=" + std::to_string(recent) +
        ",per_layer=" + (per_layer ? "true" : "false") + (max ? ",reduce=max" : "");
    Harness h(testing::Make(Tova(), parameters),
              {.n_q_heads = n_kv_heads * group, .n_kv_heads = n_kv_heads, .budget = budget});
    std::vector<std::vector<Position>> lists(static_cast<size_t>(n_kv_heads));
    const auto run = [&](int64_t n, bool decode) {
      const int64_t n_before = h.n_seen();
      const auto weight = [&](int q_head, int64_t query, Position entry) {
        return testing::Random({static_cast<int64_t>(seed), q_head, query, entry});
      };
      const auto weights = [&](const Cell& cell) {
        return weight(cell.q_head, n_before + cell.query, cell.position);
      };
      if (decode) {
        h.Decode(weights);
      } else {
        h.Prefill(n, weights);
      }
      // The last row, over a group.
      const auto reduced = [&](int kv_head, Position entry) {
        double sum = 0, largest = 0;
        for (int q_head = kv_head * group; q_head < (kv_head + 1) * group; ++q_head) {
          const double one = weight(q_head, n_before + n - 1, entry);
          sum += one;
          largest = std::max(largest, one);
        }
        return max ? largest : sum / group;
      };
      for (int head = 0; head < n_kv_heads; ++head) {
        std::vector<Position>& kept = lists[static_cast<size_t>(head)];
        for (int64_t t = n_before; t < n_before + n; ++t) kept.push_back(static_cast<Position>(t));
        while (std::ssize(kept) > budget) {
          auto victim = kept.begin() + sinks;
          double min = 1e9;
          for (auto one = victim; one < kept.end() - recent; ++one) {
            double score = 0;
            for (int voter = 0; voter < n_kv_heads; ++voter) {
              if (per_layer || voter == head) score += reduced(voter, *one);
            }
            if (score < min) {
              min = score;
              victim = one;
            }
          }
          kept.erase(victim);
        }
        ASSERT_EQ(h.Kept(0, head), kept) << parameters << ", budget " << budget << ", seed " << seed
                                         << ", " << h.n_seen() << " tokens";
      }
    };
    run(1 + draw(50), false);
    for (int step = 0; step < 60 && !HasFatalFailure(); ++step) run(1, true);
    run(1 + draw(30), false);
    for (int step = 0; step < 20 && !HasFatalFailure(); ++step) run(1, false);
  }
}

}  // namespace
}  // namespace winnow::compression::methods
