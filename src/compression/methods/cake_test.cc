#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "compression/budget/budget.h"
#include "compression/methods/methods.h"
#include "compression/testing/harness.h"

namespace winnow::compression {
namespace {

using testing::Harness;
using testing::Make;
using testing::Weights;
using Positions = std::vector<Position>;

std::vector<int64_t> Shares(const std::vector<double>& preferences, int64_t total, int64_t max) {
  std::vector<int64_t> out(preferences.size());
  budget::Share(preferences, total, max, out);
  return out;
}

TEST(ShareTest, ExcessGoesToThoseWithRoom) {
  EXPECT_EQ(Shares({1, 3}, 200, 120), (std::vector<int64_t>{80, 120}));
  EXPECT_EQ(Shares({1, 3}, 200, 150), (std::vector<int64_t>{50, 150}));
  // 30 over, for two layers: 15 each. 31 over: the first gets the remainder.
  EXPECT_EQ(Shares({1, 1, 2}, 200, 70), (std::vector<int64_t>{65, 65, 70}));
  EXPECT_EQ(Shares({1, 1, 2}, 200, 69), (std::vector<int64_t>{66, 65, 69}));
  // The excess of one layer may fill another to its limit.
  EXPECT_EQ(Shares({1, 5, 10}, 160, 60), (std::vector<int64_t>{40, 60, 60}));
  EXPECT_EQ(Shares({1, 5, 10}, 160, 40), (std::vector<int64_t>{40, 40, 40}));
  EXPECT_EQ(Shares({0, 0}, 11, 100), (std::vector<int64_t>{5, 5}));
}

// Preferences, scores and final sizes in plain loops, with all layers known at once.
struct PlainCake {
  int n_layers;
  int64_t n, budget, window;
  double tau1, tau2, gamma;
  int kernel;
  Weights weights;

  static constexpr int kGroup = 2;
  static constexpr int kHeads = 4;

  double At(int layer, int head, int64_t i, int64_t j) const {
    return weights({.layer = layer,
                    .q_head = head,
                    .query = i,
                    .rank = j,
                    .position = static_cast<Position>(j)});
  }
  double Variance(int layer, int head, int64_t j, double mean) const {
    double sum = 0;
    for (int64_t i = n - window; i < n; ++i) sum += std::pow(At(layer, head, i, j) - mean, 2);
    return sum / static_cast<double>(window - 1);
  }
  double Mean(int layer, int head, int64_t j) const {
    double sum = 0;
    for (int64_t i = n - window; i < n; ++i) sum += At(layer, head, i, j);
    return sum / static_cast<double>(window);
  }
  double Preference(int layer) const {
    double entropy = 0, variance = 0;
    for (int head = 0; head < kHeads; ++head) {
      for (int64_t j = 0; j < n - window; ++j) {
        for (int64_t i = n - window; i < n; ++i) {
          const double a = At(layer, head, i, j);
          entropy -= a * std::log(a + 1e-10);
        }
        variance += Variance(layer, head, j, Mean(layer, head, j));
      }
    }
    return std::pow(entropy, 1 / tau1) * std::pow(variance, 1 / tau2);
  }
  Positions Kept(int layer, int kv_head) const {
    std::vector<double> preferences;
    for (int l = 0; l < n_layers; ++l) preferences.push_back(Preference(l));
    const double sum = std::accumulate(preferences.begin(), preferences.end(), 0.0);
    const int64_t size = std::min(
        n - window, static_cast<int64_t>(preferences[static_cast<size_t>(layer)] / sum *
                                         static_cast<double>((budget - window) * n_layers)));
    std::vector<double> score(static_cast<size_t>(n - window), 0.0);
    for (int head = kv_head * kGroup; head < (kv_head + 1) * kGroup; ++head) {
      for (int64_t j = 0; j < n - window; ++j) {
        for (int64_t e = j - kernel / 2; e <= j + kernel / 2; ++e) {
          if (e < 0 || e >= n - window) continue;
          const double mean = Mean(layer, head, e);
          score[static_cast<size_t>(j)] += (mean + gamma * Variance(layer, head, e, mean)) / kernel;
        }
      }
    }
    Positions kept(score.size());
    std::iota(kept.begin(), kept.end(), 0);
    std::sort(kept.begin(), kept.end(), [&](Position a, Position b) {
      const double x = score[static_cast<size_t>(a)];
      const double y = score[static_cast<size_t>(b)];
      return x != y ? x > y : a > b;
    });
    kept.resize(static_cast<size_t>(size));
    for (int64_t j = n - window; j < n; ++j) kept.push_back(static_cast<Position>(j));
    std::sort(kept.begin(), kept.end());
    return kept;
  }
};

// Weights whose variance differs between layers.
Weights Spread(uint64_t seed, double by_layer) {
  const Weights random = testing::RandomWeights(seed);
  return [random, by_layer](const testing::Cell& cell) {
    return 0.01 + 0.01 * random(cell) * (1 + by_layer * (cell.layer * 7 % 3));
  };
}

// Shrinking layer after layer gives the same result as knowing all layers at once.
TEST(CakeTest, CascadeAgreesWithPlainLoops) {
  for (uint64_t seed = 0; seed < 5; ++seed) {
    const PlainCake plain = {.n_layers = 5,
                             .n = 60,
                             .budget = 20,
                             .window = 6,
                             .tau1 = 1.6,
                             .tau2 = 1.4,
                             .gamma = 200,
                             .kernel = 5,
                             .weights = Spread(seed, 0.2)};
    Harness h(Make(methods::Cake(), "window=6,tau1=1.6,tau2=1.4"),
              {.n_layers = 5, .n_q_heads = 4, .n_kv_heads = 2, .budget = 20});
    h.Prefill(60, plain.weights);
    int64_t sum = 0;
    for (int layer = 0; layer < 5; ++layer) {
      for (int kv_head = 0; kv_head < 2; ++kv_head) {
        EXPECT_EQ(h.Kept(layer, kv_head), plain.Kept(layer, kv_head))
            << "layer " << layer << " head " << kv_head;
      }
      sum += h.cache().n_slots(layer, 0);
    }
    EXPECT_LE(sum, h.method().TotalSlots(20, 60, 5));
    EXPECT_GT(sum, 5 * 20 - 5);
    EXPECT_NE(h.cache().n_slots(0, 0), h.cache().n_slots(2, 0));
    EXPECT_GT(h.plans().size(), 5u);  // layers shrank more than once
  }
}

TEST(CakeTest, LayersSeenSoFarNeverExceedTheBudgetOfAll) {
  Harness h(Make(methods::Cake(), "window=6"),
            {.n_layers = 6, .n_q_heads = 4, .n_kv_heads = 2, .budget = 16});
  for (uint64_t chunk = 0; chunk < 8; ++chunk) {
    h.Prefill(25, Spread(chunk, 3));
    int64_t sum = 0;
    for (int layer = 0; layer < 6; ++layer) {
      sum += h.cache().n_slots(layer, 0);
      const Positions kept = h.Kept(layer);
      EXPECT_EQ(kept[kept.size() - 6], static_cast<Position>(25 * (chunk + 1) - 6));
    }
    EXPECT_LE(sum, 6 * 16);
  }
}

TEST(CakeTest, KeepsAPromptThatFits) {
  for (const int64_t n : {1, 19, 20}) {
    Harness h(Make(methods::Cake(), "window=6"), {.n_layers = 4, .budget = 20});
    h.Prefill(n, Spread(1, 3));
    EXPECT_TRUE(h.plans().empty());
  }
  Harness h(Make(methods::Cake(), "window=6"), {.n_layers = 4, .budget = 20});
  h.Prefill(21, Spread(1, 3));
  EXPECT_FALSE(h.plans().empty());
}

TEST(CakeTest, SteadyAttentionSharesEqually) {
  Harness h(Make(methods::Cake(), "window=4,kernel=1"), {.n_layers = 3, .budget = 10});
  h.Prefill(30, [](const testing::Cell&) { return 0.1; });  // no variance: preference 0
  for (int layer = 0; layer < 3; ++layer) EXPECT_EQ(h.Kept(layer).size(), 10u);
}

}  // namespace
}  // namespace winnow::compression
