#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
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

// The whole method in plain loops.
Positions PlainSnapKv(const Weights& weights, int64_t n, int64_t budget, int64_t window, int kernel,
                      bool max, int kv_head) {
  Positions kept(static_cast<size_t>(n));
  std::iota(kept.begin(), kept.end(), 0);
  if (n <= budget) return kept;
  if (budget <= window) window = std::max<int64_t>(1, budget / 2);
  const int64_t prefix = n - window;
  std::vector<double> sums(static_cast<size_t>(prefix), 0.0);
  for (int64_t j = 0; j < prefix; ++j) {
    for (int64_t i = prefix; i < n; ++i) {
      for (int q_head = 2 * kv_head; q_head < 2 * kv_head + 2; ++q_head) {
        sums[static_cast<size_t>(j)] +=
            weights(
                {.q_head = q_head, .query = i, .rank = j, .position = static_cast<Position>(j)}) /
            2;
      }
    }
  }
  std::vector<std::pair<double, int64_t>> ranked;
  for (int64_t j = 0; j < prefix; ++j) {
    double sum = 0, highest = 0;
    for (int64_t e = j - kernel / 2; e <= j + kernel / 2; ++e) {
      if (e < 0 || e >= prefix) continue;
      sum += sums[static_cast<size_t>(e)];
      highest = std::max(highest, sums[static_cast<size_t>(e)]);
    }
    ranked.emplace_back(max ? highest : sum / kernel, j);
  }
  std::sort(ranked.rbegin(), ranked.rend());
  kept.clear();
  for (int64_t i = 0; i < budget - window; ++i) {
    kept.push_back(static_cast<Position>(ranked[static_cast<size_t>(i)].second));
  }
  std::sort(kept.begin(), kept.end());
  for (int64_t j = prefix; j < n; ++j) kept.push_back(static_cast<Position>(j));
  return kept;
}

TEST(SnapKvTest, AgreesWithPlainLoops) {
  for (const int64_t n : {1, 5, 15, 16, 17, 24, 25, 40, 90}) {
    for (const int64_t budget : {1, 2, 7, 8, 9, 16, 24, 39, 90}) {
      for (const bool max : {false, true}) {
        const Weights weights = testing::RandomWeights(static_cast<uint64_t>(n * 100 + budget));
        Harness h(Make(methods::SnapKv(),
                       std::string("window=8,kernel=5,pool=") + (max ? "max" : "average")),
                  {.n_q_heads = 4, .n_kv_heads = 2, .budget = budget});
        h.Prefill(n, weights);
        for (int kv_head = 0; kv_head < 2; ++kv_head) {
          EXPECT_EQ(h.Kept(0, kv_head), PlainSnapKv(weights, n, budget, 8, 5, max, kv_head))
              << "n " << n << " budget " << budget;
        }
      }
    }
  }
}

TEST(SnapKvTest, ChunksAreBroughtBackToTheBudget) {
  Harness h(Make(methods::SnapKv(), "window=8"), {.budget = 20});
  for (uint64_t chunk = 0; chunk < 10; ++chunk) {
    h.Prefill(16, testing::RandomWeights(chunk));
    const Positions kept = h.Kept();
    EXPECT_EQ(kept.size(), std::min<size_t>(20, 16 * (chunk + 1)));
    EXPECT_EQ(kept[kept.size() - 8], static_cast<Position>(16 * (chunk + 1) - 8));
  }
}

}  // namespace
}  // namespace winnow::compression
