#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <vector>

#include "compression/methods/methods.h"
#include "compression/testing/harness.h"
#include "compression/testing/random.h"

namespace winnow::compression::methods {
namespace {

using testing::Cell;
using testing::Harness;
using Kept = std::vector<Position>;

TEST(ScissorhandsTest, HalfOfTheBudgetGoesAtOnce) {
  Harness h(testing::Make(Scissorhands(), "recent=1"), {.budget = 4});
  h.Decode({1});
  h.Decode({.4, .6});
  h.Decode({.4, .3, .3});
  h.Decode({.3, .1, .5, .1});
  EXPECT_EQ(h.Kept(), (Kept{0, 1, 2, 3}));
  // The rows gave 0..3 less than an equal share 1, 2, 1 and 2 times; the newest always stays.
  h.Decode({.3, .3, .3, .05, .05});
  EXPECT_EQ(h.Kept(), (Kept{0, 2, 4}));
  h.Decode({.3, .3, .3, .1});
  EXPECT_EQ(h.Kept().size(), 4u);
}

TEST(ScissorhandsTest, OfEqualOnesTheOldestGo) {
  Harness h(testing::Make(Scissorhands(), "recent=1"), {.budget = 4});
  for (int step = 0; step < 5; ++step) h.Decode([](const Cell&) { return 1.0; });
  EXPECT_EQ(h.Kept(), (Kept{2, 3, 4}));
}

TEST(ScissorhandsTest, APromptTakesAsManyBurstsAsItNeeds) {
  Harness h(testing::Make(Scissorhands(), "recent=2,drop=0.25"), {.budget = 8});
  h.Prefill(11, [](const Cell& cell) { return cell.rank < 4 ? 1.0 : 0.0; });
  // Three over the budget, evicted two at a time.
  EXPECT_EQ(h.Kept(), (Kept{0, 1, 2, 3, 8, 9, 10}));
}

// The history as a list of rows, with a window longer than one column holds.
TEST(ScissorhandsTest, AgreesWithPlainLoops) {
  constexpr int kWindow = 60;
  constexpr int64_t kBudget = 20, kRecent = 3;
  Harness h(testing::Make(Scissorhands(), "window=60,recent=3"),
            {.n_q_heads = 4, .n_kv_heads = 2, .budget = kBudget});
  std::vector<Kept> kept(2);
  std::vector<std::deque<std::map<Position, bool>>> history(2);  // per row: below an equal share?
  const auto weight = [](int q_head, int64_t query, Position entry) {
    return 0.1 * testing::Random({q_head, query, entry}) * testing::Random({q_head / 2, entry});
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
      Kept& entries = kept[static_cast<size_t>(head)];
      auto& rows = history[static_cast<size_t>(head)];
      for (int64_t query = n_before; query < n_before + n; ++query) {
        entries.push_back(static_cast<Position>(query));
        std::map<Position, bool> row;
        for (const Position t : entries) {
          const double mean = (weight(2 * head, query, t) + weight(2 * head + 1, query, t)) / 2;
          row[t] = static_cast<float>(mean) < 1 / static_cast<double>(entries.size());
        }
        rows.push_back(row);
        if (rows.size() > kWindow) rows.pop_front();
      }
      while (static_cast<int64_t>(entries.size()) > kBudget) {
        std::vector<size_t> order;
        for (size_t i = 0; i + kRecent < entries.size(); ++i) order.push_back(i);
        const auto count = [&](size_t i) {
          int64_t passed_over = 0;
          for (auto& row : rows) passed_over += row.contains(entries[i]) && row[entries[i]];
          return passed_over;
        };
        std::stable_sort(order.begin(), order.end(),
                         [&](size_t a, size_t b) { return count(a) > count(b); });
        order.resize(kBudget / 2);
        std::sort(order.begin(), order.end());
        for (auto i = order.rbegin(); i != order.rend(); ++i) {
          entries.erase(entries.begin() + static_cast<ptrdiff_t>(*i));
        }
      }
      ASSERT_EQ(h.Kept(0, head), entries) << h.n_seen();
    }
  };
  run(35, false);
  for (int step = 0; step < 250 && !HasFatalFailure(); ++step) run(1, true);
  run(90, false);
  for (int step = 0; step < 30 && !HasFatalFailure(); ++step) run(1, false);
}

}  // namespace
}  // namespace winnow::compression::methods
