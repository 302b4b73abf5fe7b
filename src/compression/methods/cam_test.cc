#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "compression/methods/methods.h"
#include "compression/testing/harness.h"
#include "compression/testing/random.h"

namespace winnow::compression::methods {
namespace {

using testing::Cell;
using testing::Harness;
using Kept = std::vector<Position>;

constexpr int kDim = 2;

// Value of token t: (t + 1, 1).
void UseValues(Harness& h) {
  h.SetValues([](int, int, Position t) {
    return std::vector<float>{static_cast<float>(t + 1), 1};
  });
  h.SetKeys([](int, int, Position t) { return std::vector<float>{1, static_cast<float>(t)}; });
}

TEST(CamTest, AnEvictedValueIsSpreadOverTheNext) {
  Harness h(testing::Make(Cam(), "sinks=1,reach=2,expected=true"), {.budget = 4});
  UseValues(h);
  h.Prefill(4, [](const Cell&) { return 0.0; });
  // Token 1 is evicted: p = .1 / mean(.3, .1) = .5, so 2 and 3 each get a quarter of (2, 1).
  h.Decode({.4, .1, .3, .1, .1});
  EXPECT_EQ(h.Kept(), (Kept{0, 2, 3, 4}));
  EXPECT_EQ(h.Value(0), (std::vector<float>{1, 1}));
  EXPECT_EQ(h.Value(1), (std::vector<float>{3.5f, 1.25f}));
  EXPECT_EQ(h.Value(2), (std::vector<float>{4.5f, 1.25f}));
  EXPECT_EQ(h.Value(3), (std::vector<float>{5, 1}));
  for (int64_t rank = 0; rank < 4; ++rank) {
    const auto position = static_cast<float>(h.Kept()[static_cast<size_t>(rank)]);
    EXPECT_EQ(h.Key(rank), (std::vector<float>{1, position})) << "keys stay";
  }
  // Token 2 is evicted: accumulated .5 against mean(.2, .2), so p = 1.
  h.Decode({.4, .2, .1, .1, .2});
  EXPECT_EQ(h.Value(1), (std::vector<float>{4.5f + 1.75f, 1.25f + .625f}));
  EXPECT_EQ(h.Value(2), (std::vector<float>{5 + 1.75f, 1 + .625f}));
}

TEST(CamTest, ByTheLastRow) {
  Harness h(testing::Make(Cam(), "sinks=0,reach=1,expected=true,attention=last"), {.budget = 2});
  UseValues(h);
  h.Prefill(2, [](const Cell&) { return 9.0; });
  h.Decode({.1, .4, .5});
  EXPECT_EQ(h.Value(0), (std::vector<float>{2.25f, 1.25f}));
}

// An entry without attention is not merged; fewer followers than `reach` share the value.
TEST(CamTest, Edges) {
  Harness none(testing::Make(Cam(), "sinks=0,expected=true"), {.budget = 2});
  UseValues(none);
  none.Prefill(2, [](const Cell&) { return 0.0; });
  none.Decode({0, 0, 0});
  EXPECT_EQ(none.Value(0), (std::vector<float>{2, 1}));

  Harness few(testing::Make(Cam(), "sinks=0,expected=true"), {.budget = 2});
  UseValues(few);
  few.Prefill(2, [](const Cell&) { return 0.0; });
  few.Decode({1, .5, .5});
  EXPECT_EQ(few.Value(0), (std::vector<float>{2.5f, 1.5f}));
  EXPECT_EQ(few.Value(1), (std::vector<float>{3.5f, 1.5f}));
}

// Draws merge all or nothing, as often as p says, and the same seed draws the same.
TEST(CamTest, Draws) {
  const auto merged = [](int seed) {
    Harness h(testing::Make(Cam(), "sinks=0,reach=1,seed=" + std::to_string(seed)),
              {.n_q_heads = 2, .n_kv_heads = 2, .budget = 1});
    UseValues(h);
    h.Prefill(1, [](const Cell&) { return 0.0; });
    h.Decode({.3, 1});
    std::vector<bool> result;
    for (int head = 0; head < 2; ++head) {
      const float value = h.Value(0, 0, head)[0];
      EXPECT_TRUE(value == 2 || value == 3) << value;
      result.push_back(value == 3);
    }
    return result;
  };
  int n_merged = 0;
  int n_different = 0;
  for (int seed = 0; seed < 1000; ++seed) {
    const std::vector<bool> heads = merged(seed);
    n_merged += heads[0] + heads[1];
    n_different += heads[0] != heads[1];
  }
  EXPECT_EQ(merged(7), merged(7));
  // 2000 draws at .3: mean 600, deviation 20.5. Independent heads differ with probability .42.
  EXPECT_NEAR(n_merged, 600, 90);
  EXPECT_NEAR(n_different, 420, 70);
}

// Plain loops evict one entry at a time, in steps and in prompts that evict many.
TEST(CamTest, AgreesWithPlainLoops) {
  constexpr int64_t kBudget = 12;
  constexpr size_t kSinks = 2, kReach = 4;
  Harness h(testing::Make(Cam(), "sinks=2,reach=4,expected=true"),
            {.n_q_heads = 4, .n_kv_heads = 2, .budget = kBudget});
  h.SetValues([](int, int head, Position t) { return testing::RandomVector({head, t}, kDim); });
  struct Entry {
    Position position = 0;
    double attention = 0;
    std::vector<double> value = {};
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
        Entry added = {.position = static_cast<Position>(query)};
        for (const float x : testing::RandomVector({head, query}, kDim)) added.value.push_back(x);
        entries.push_back(added);
        for (Entry& e : entries) {
          e.attention +=
              (weight(2 * head, query, e.position) + weight(2 * head + 1, query, e.position)) / 2;
        }
      }
      while (static_cast<int64_t>(entries.size()) > kBudget) {
        const Entry gone = entries[kSinks];
        const size_t last = std::min(entries.size(), kSinks + 1 + kReach);
        const auto n_next = static_cast<double>(last - kSinks - 1);
        double mean = 0;
        for (size_t i = kSinks + 1; i < last; ++i) mean += entries[i].attention / n_next;
        const double p = std::min(1.0, gone.attention / mean);
        for (size_t i = kSinks + 1; i < last; ++i) {
          for (size_t x = 0; x < kDim; ++x) entries[i].value[x] += p * gone.value[x] / n_next;
        }
        entries.erase(entries.begin() + kSinks);
      }
      Kept positions;
      for (const Entry& e : entries) positions.push_back(e.position);
      ASSERT_EQ(h.Kept(0, head), positions);
      for (size_t rank = 0; rank < entries.size(); ++rank) {
        const std::vector<float> value = h.Value(static_cast<int64_t>(rank), 0, head);
        for (size_t x = 0; x < kDim; ++x) {
          ASSERT_NEAR(value[x], entries[rank].value[x], 1e-5) << h.n_seen() << " rank " << rank;
        }
      }
    }
  };
  run(50, false);
  for (int step = 0; step < 200 && !HasFatalFailure(); ++step) run(1, true);
  run(14, false);
  run(5, false);
  for (int step = 0; step < 20 && !HasFatalFailure(); ++step) run(1, false);
}

}  // namespace
}  // namespace winnow::compression::methods
