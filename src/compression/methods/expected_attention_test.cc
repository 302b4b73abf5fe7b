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

constexpr int kDim = 6;  // two pairs that rotate, two dimensions that do not
constexpr int kGroup = 2;
const std::vector<double> kFrequencies = {0.7, 0.05};

std::vector<float> Query(int head, Position position) {
  std::vector<float> query = testing::RandomVector({3, head, position}, kDim);
  query[0] += 1;  // so that the mean is not zero
  return query;
}
std::vector<float> Key(int head, Position position) {
  return testing::RandomVector({1, head, position}, kDim);
}
std::vector<float> Value(int head, Position position) {
  return testing::RandomVector({2, head, position}, kDim);
}

using Matrix = std::vector<std::vector<double>>;

// The mean of the rotations of positions [first, first + n), as a matrix.
Matrix MeanRotation(int64_t first, int n) {
  Matrix mean(kDim, std::vector<double>(kDim, 0.0));
  const size_t n_pairs = kFrequencies.size();
  for (int i = 0; i < n; ++i) {
    for (size_t pair = 0; pair < n_pairs; ++pair) {
      const double angle = kFrequencies[pair] * static_cast<double>(first + i);
      mean[pair][pair] += std::cos(angle) / n;
      mean[pair][pair + n_pairs] -= std::sin(angle) / n;
      mean[pair + n_pairs][pair] += std::sin(angle) / n;
      mean[pair + n_pairs][pair + n_pairs] += std::cos(angle) / n;
    }
  }
  for (size_t i = 2 * n_pairs; i < kDim; ++i) mean[i][i] = 1;
  return mean;
}

struct PlainExpected {
  int64_t n;
  int sinks, future;
  double epsilon;
  bool covariance;

  std::vector<double> Scores(int kv_head) const {
    const Matrix rotation = MeanRotation(n, future);
    std::vector<double> scores(static_cast<size_t>(n - sinks), 0.0);
    for (int head = kv_head * kGroup; head < (kv_head + 1) * kGroup; ++head) {
      std::vector<double> mean(kDim, 0.0);
      Matrix cov(kDim, mean);
      const double count = static_cast<double>(n - sinks);
      for (Position p = sinks; p < n; ++p) {
        for (size_t i = 0; i < kDim; ++i) mean[i] += Query(head, p)[i] / count;
      }
      for (Position p = sinks; p < n; ++p) {
        for (size_t i = 0; i < kDim; ++i) {
          for (size_t j = 0; j < kDim; ++j) {
            cov[i][j] += (Query(head, p)[i] - mean[i]) * (Query(head, p)[j] - mean[j]) / count;
          }
        }
      }
      std::vector<double> logits;
      for (Position p = sinks; p < n; ++p) {
        const std::vector<float> key = Key(kv_head, p);
        // k . R x is x . R' k.
        std::vector<double> turned(kDim, 0.0);
        for (size_t i = 0; i < kDim; ++i) {
          for (size_t j = 0; j < kDim; ++j) turned[j] += rotation[i][j] * key[i];
        }
        double linear = 0, quadratic = 0;
        for (size_t i = 0; i < kDim; ++i) {
          linear += turned[i] * mean[i];
          for (size_t j = 0; j < kDim; ++j) quadratic += turned[i] * cov[i][j] * turned[j];
        }
        logits.push_back(linear + (covariance ? quadratic / 2 : 0));  // the harness' scale is 1
      }
      double sum = 0;
      for (const double logit : logits) sum += std::exp(logit);
      for (size_t i = 0; i < logits.size(); ++i) scores[i] += std::exp(logits[i]) / sum / kGroup;
    }
    for (size_t i = 0; i < scores.size(); ++i) {
      double square = 0;
      for (const float x : Value(kv_head, static_cast<Position>(i) + sinks))
        square += double{x} * x;
      scores[i] = (scores[i] + epsilon) * std::sqrt(square);
    }
    return scores;
  }
};

Positions Best(const std::vector<double>& scores, int64_t first, size_t n_keep) {
  Positions ranks(scores.size());
  std::iota(ranks.begin(), ranks.end(), 0);
  std::sort(ranks.begin(), ranks.end(), [&](Position a, Position b) {
    return scores[static_cast<size_t>(a)] > scores[static_cast<size_t>(b)];
  });
  ranks.resize(n_keep);
  for (Position& rank : ranks) rank += static_cast<Position>(first);
  for (Position p = 0; p < first; ++p) ranks.push_back(p);
  std::sort(ranks.begin(), ranks.end());
  return ranks;
}

TEST(ExpectedAttentionTest, AgreesWithPlainLoops) {
  for (const bool covariance : {true, false}) {
    for (const int64_t n : {20, 41}) {
      const PlainExpected plain = {
          .n = n, .sinks = 3, .future = 40, .epsilon = 0.02, .covariance = covariance};
      std::string spec = "sinks=3,future=40,epsilon=0.02,alpha=1";
      if (!covariance) spec += ",covariance=false";
      Harness h(Make(methods::ExpectedAttention(), spec),
                {.n_q_heads = 4, .n_kv_heads = 2, .dim = kDim, .budget = 12});
      h.SetAngles(kFrequencies);
      h.SetQueries([](int, int head, Position position) { return Query(head, position); });
      h.SetKeys([](int, int head, Position position) { return Key(head, position); });
      h.SetValues([](int, int head, Position position) { return Value(head, position); });
      h.Prefill(n, [](const testing::Cell&) { return 0.0; });
      for (int head = 0; head < 2; ++head) {
        EXPECT_EQ(h.Kept(0, head), Best(plain.Scores(head), 3, 9)) << "head " << head;
      }
    }
  }
}

// All queries are (1, 0): keys along them stay, and of equally attended ones that with the larger
// value.
TEST(ExpectedAttentionTest, QueriesThatAreAllTheSameAreExpectedAgain) {
  Harness h(Make(methods::ExpectedAttention(), "sinks=0,epsilon=0"), {.budget = 2});
  h.SetQueries([](int, int, Position) { return std::vector<float>{8, 0}; });
  h.SetKeys([](int, int, Position position) {
    return std::vector<float>{position < 3 ? 1.0f : -1.0f, 0};
  });
  h.SetValues([](int, int, Position position) {
    return std::vector<float>{position == 1 ? 0.5f : 1.0f, 0};
  });
  h.Prefill(6, [](const testing::Cell&) { return 0.0; });
  EXPECT_EQ(h.Kept(), (Positions{0, 2}));
}

}  // namespace
}  // namespace winnow::compression
