#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "compression/methods/methods.h"
#include "compression/testing/harness.h"
#include "compression/testing/random.h"

namespace winnow::compression {
namespace {

using testing::Harness;
using testing::Make;
using Positions = std::vector<Position>;

// Half of the budget of four goes to the best scores, 0 and 1, the rest to score times value: 3 and
// 2.
TEST(CriticalKvTest, HalfByScoreHalfByScoreTimesValue) {
  Harness h(Make(methods::CriticalKv(), "score=last,epsilon=0"), {.budget = 4});
  h.SetValues([](int, int, Position position) {
    const std::vector<float> sizes = {0, 0, 3, 5, 1, 1};
    return std::vector<float>{sizes[static_cast<size_t>(position)], 0};
  });
  h.Prefill(6, testing::LastQuery({0.5, 0.25, 0.1, 0.08, 0.2, 0.1}, 6));
  EXPECT_EQ(h.Kept(), (Positions{0, 1, 2, 3}));
  // All by score: 0, 1, 4, and the newer of 2 and 5.
  Harness scores(Make(methods::CriticalKv(), "score=last,first=1"), {.budget = 4});
  scores.Prefill(6, testing::LastQuery({0.5, 0.25, 0.1, 0.08, 0.2, 0.1}, 6));
  EXPECT_EQ(scores.Kept(), (Positions{0, 1, 4, 5}));
}

constexpr int kDim = 3;
constexpr int kModelDim = 5;

std::vector<float> Value(int head, Position position) {
  return testing::RandomVector({head, position}, kDim);
}
std::vector<float> Projection(int q_head) {
  return testing::RandomVector({9, q_head}, kModelDim * kDim);
}

// W_O v|_1, averaged over the group.
double Norm(int kv_head, Position position) {
  double norm = 0;
  for (int head = 2 * kv_head; head < 2 * kv_head + 2; ++head) {
    const auto w = Projection(head);
    const auto v = Value(kv_head, position);
    for (size_t row = 0; row < kModelDim; ++row) {
      double sum = 0;
      for (size_t i = 0; i < kDim; ++i) sum += double{w[row * kDim + i]} * v[i];
      norm += std::abs(sum) / 2;
    }
  }
  return norm;
}

TEST(CriticalKvTest, AgreesWithPlainLoops) {
  constexpr int64_t kN = 40;
  constexpr size_t kWindow = 4, kBudget = 16;
  for (uint64_t seed = 0; seed < 5; ++seed) {
    const testing::Weights weights = testing::RandomWeights(seed);
    Harness h(Make(methods::CriticalKv(), "score=window(window=4,pool=none),epsilon=0.05"),
              {.n_q_heads = 4, .n_kv_heads = 2, .dim = kDim, .budget = kBudget});
    h.SetValues([](int, int head, Position position) { return Value(head, position); });
    h.SetProjection(kModelDim, [](int, int q_head) { return Projection(q_head); });
    h.Prefill(kN, weights);
    for (int kv_head = 0; kv_head < 2; ++kv_head) {
      std::vector<double> first, second;
      for (Position p = 0; p < static_cast<Position>(kN - kWindow); ++p) {
        double mean = 0;
        for (int64_t query = kN - static_cast<int64_t>(kWindow); query < kN; ++query) {
          for (int head = 2 * kv_head; head < 2 * kv_head + 2; ++head) {
            mean +=
                weights({.q_head = head, .query = query, .rank = p, .position = p}) / (2 * kWindow);
          }
        }
        first.push_back(mean);
        second.push_back((mean + 0.05) * Norm(kv_head, p));
      }
      Positions order(first.size());
      std::iota(order.begin(), order.end(), 0);
      const auto by = [](const std::vector<double>& scores) {
        return [&scores](Position a, Position b) {
          const double x = scores[static_cast<size_t>(a)], y = scores[static_cast<size_t>(b)];
          return x != y ? x > y : a > b;
        };
      };
      std::sort(order.begin(), order.end(), by(first));
      std::sort(order.begin() + kBudget / 2 - kWindow, order.end(), by(second));
      order.resize(kBudget - kWindow);
      for (Position p = kN - kWindow; p < static_cast<Position>(kN); ++p) order.push_back(p);
      std::sort(order.begin(), order.end());
      EXPECT_EQ(h.Kept(0, kv_head), order) << "seed " << seed << ", head " << kv_head;
    }
  }
}

TEST(CriticalKvTest, PartsAreNamedInErrors) {
  const auto score = MakeMethod("criticalkv:score=nothing");
  ASSERT_FALSE(score);
  EXPECT_TRUE(score.error().message.starts_with("criticalkv: score: found 'nothing'"))
      << score.error().message;
  EXPECT_FALSE(MakeMethod("criticalkv:budget=norm"));
  EXPECT_TRUE(MakeMethod("criticalkv:score=key_difference,budget=competing(0.2)"));
}

}  // namespace
}  // namespace winnow::compression
