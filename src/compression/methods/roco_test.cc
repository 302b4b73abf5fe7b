#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "compression/methods/methods.h"
#include "compression/testing/harness.h"
#include "compression/testing/random.h"

namespace winnow::compression::methods {
namespace {

using testing::Cell;
using testing::Harness;
using Kept = std::vector<Position>;

// Entry 1 has the lowest mean attention but varies most: with the gate entry 2 goes instead.
TEST(RocoTest, WhatVariesOverTimeIsSpared) {
  const auto run = [](const std::string& ratio) {
    Harness h(testing::Make(Roco(), "recent=1,ratio=" + ratio), {.budget = 4});
    h.Decode({.4});
    h.Decode({.4, .0});
    h.Decode({.4, .3, .2});
    h.Decode({.4, .0, .2, .4});
    h.Decode({.4, .1, .2, .3, 0});
    return h.Kept();
  };
  // Means .4, .1, .2, .35; candidates are all four, or the three that vary least.
  EXPECT_EQ(run("0"), (Kept{0, 2, 3, 4}));
  EXPECT_EQ(run("0.25"), (Kept{0, 1, 3, 4}));
}

TEST(RocoTest, OfEqualOnesTheOldestGo) {
  Harness h(testing::Make(Roco(), "recent=2"), {.budget = 5});
  for (int step = 0; step < 7; ++step) h.Decode([](const Cell&) { return 0.5; });
  EXPECT_EQ(h.Kept(), (Kept{2, 3, 4, 5, 6}));
}

// The first tokens are protected in a prompt only.
TEST(RocoTest, SinksOfAPrompt) {
  Harness h(testing::Make(Roco(), "recent=1,prefill_sinks=2"), {.budget = 4});
  h.Prefill(5, [](const Cell&) { return 0.5; });
  EXPECT_EQ(h.Kept(), (Kept{0, 1, 3, 4}));
  h.Decode([](const Cell&) { return 0.5; });
  EXPECT_EQ(h.Kept(), (Kept{1, 3, 4, 5}));
}

TEST(RocoTest, AgreesWithPlainLoops) {
  constexpr int64_t kBudget = 24, kRecent = 5, kPromptSinks = 2;
  Harness h(testing::Make(Roco(), "recent=5,prefill_sinks=2"),
            {.n_q_heads = 4, .n_kv_heads = 2, .budget = kBudget});
  struct Entry {
    Position position = 0;
    double sum = 0, squares = 0, count = 0;
    double mean() const { return sum / count; }
    double deviation() const { return std::sqrt(std::max(0.0, squares / count - mean() * mean())); }
  };
  std::vector<std::vector<Entry>> kept(2);
  const auto weight = [](int q_head, int64_t query, Position entry) {
    return testing::Random({q_head, query, entry}) * testing::Random({q_head / 2, entry});
  };
  const auto run = [&](int64_t n, bool decode) {
    const int64_t n_before = h.n_seen();
    const auto weights = [&](const Cell& cell) {
      return weight(cell.q_head, n_before + cell.query, cell.position);
    };
    if (decode) {
      h.Decode(weights);
    } else {
      h.Prefill(n, weights);
    }
    for (int head = 0; head < 2; ++head) {
      std::vector<Entry>& entries = kept[static_cast<size_t>(head)];
      for (int64_t query = n_before; query < n_before + n; ++query) {
        entries.push_back({.position = static_cast<Position>(query)});
        for (Entry& e : entries) {
          const double a =
              (weight(2 * head, query, e.position) + weight(2 * head + 1, query, e.position)) / 2;
          e.sum += a;
          e.squares += a * a;
          e.count += 1;
        }
      }
      const int64_t sinks = decode ? 0 : kPromptSinks;
      const auto n_candidates =
          static_cast<size_t>(kBudget - (decode ? 7 : 2) - sinks);  // floor(.3 B), floor(.1 B)
      while (static_cast<int64_t>(entries.size()) > kBudget) {
        std::vector<size_t> candidates;
        for (size_t i = static_cast<size_t>(sinks); i + kRecent < entries.size(); ++i) {
          candidates.push_back(i);
        }
        std::stable_sort(candidates.begin(), candidates.end(), [&](size_t a, size_t b) {
          return entries[a].deviation() < entries[b].deviation();
        });
        candidates.resize(std::min(candidates.size(), n_candidates));
        size_t victim = candidates[0];
        for (const size_t i : candidates) {
          if (entries[i].mean() < entries[victim].mean()) victim = i;
        }
        entries.erase(entries.begin() + static_cast<ptrdiff_t>(victim));
      }
      Kept positions;
      for (const Entry& e : entries) positions.push_back(e.position);
      ASSERT_EQ(h.Kept(0, head), positions) << h.n_seen();
    }
  };
  run(60, false);
  for (int step = 0; step < 220 && !HasFatalFailure(); ++step) run(1, true);
  run(30, false);  // a block, as the authors encode prompts
  for (int step = 0; step < 30 && !HasFatalFailure(); ++step) run(1, false);
}

// With RoCo's scores the gate reads the means from them; with other scores it keeps its own sums.
TEST(RocoTest, TheGateWithSumsOfItsOwnKeepsTheSame) {
  const testing::HarnessConfig options = {.n_q_heads = 4, .n_kv_heads = 2, .budget = 24};
  Harness roco(testing::Make(Roco(), "recent=5,prefill_sinks=0"), options);
  Harness custom(
      testing::Make(Custom(), "score=running_mean,select=gate,sinks=0,recent=5,when=step"),
      options);
  for (int step = 0; step < 200; ++step) {
    const int64_t n_before = roco.n_seen();
    const auto weights = [&](const Cell& cell) {
      return testing::Random({cell.q_head, n_before + cell.query, cell.position});
    };
    roco.Decode(weights);
    custom.Decode(weights);
    for (int head = 0; head < 2; ++head)
      ASSERT_EQ(roco.Kept(0, head), custom.Kept(0, head)) << step;
  }
}

}  // namespace
}  // namespace winnow::compression::methods
