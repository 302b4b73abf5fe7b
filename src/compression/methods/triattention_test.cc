#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "compression/methods/methods.h"
#include "compression/testing/harness.h"
#include "compression/testing/random.h"
#include "compression/testing/vectors.h"

namespace winnow::compression {
namespace {

using testing::Harness;
using testing::Make;
using Positions = std::vector<Position>;

constexpr int kDim = 5;  // two pairs, (0, 2) and (1, 3), and a dimension that does not rotate
const std::vector<double> kFrequencies = {0.9, 0.02};

std::vector<float> Query(int head, Position position) {
  std::vector<float> query = testing::RandomVector({3, head, position}, kDim);
  query[0] += 1;
  query[3] -= 1;
  return query;
}
// Before RoPE.
std::vector<float> Key(int head, Position position) {
  return testing::RandomVector({1, head, position}, kDim);
}

// The formula in lengths and angles.
double Score(int q_head, int kv_head, Position position, int64_t n) {
  double score = 0;
  for (size_t pair = 0; pair < 2; ++pair) {
    double x = 0, y = 0, length = 0;
    for (Position p = 0; p < n; ++p) {
      const auto q = Query(q_head, p);
      x += q[pair] / static_cast<double>(n);
      y += q[pair + 2] / static_cast<double>(n);
      length += std::hypot(q[pair], q[pair + 2]) / static_cast<double>(n);
    }
    const auto k = Key(kv_head, position);
    const double k_length = std::hypot(k[pair], k[pair + 2]);
    const double phase = std::atan2(y, x) - std::atan2(k[pair + 2], k[pair]);
    int n_distances = 0;
    double cosines = 0;
    for (int distance = 1; distance <= 64; distance *= 2, ++n_distances) {
      cosines +=
          std::cos(kFrequencies[pair] * static_cast<double>(n - position + distance) + phase);
    }
    score += std::hypot(x, y) * k_length * cosines / n_distances;
    score += (length - std::hypot(x, y)) * k_length;
  }
  double rest = 0;
  for (Position p = 0; p < n; ++p) rest += Query(q_head, p)[4] / static_cast<double>(n);
  return score + rest * Key(kv_head, position)[4];
}

TEST(TriAttentionTest, AgreesWithTheFormula) {
  constexpr int64_t kN = 45, kBudget = 14;
  for (const bool max : {true, false}) {
    Harness h(Make(methods::TriAttention(),
                   max ? "farthest=64,recent=4" : "farthest=64,recent=4,group=mean"),
              {.n_q_heads = 4, .n_kv_heads = 2, .dim = kDim, .budget = kBudget});
    h.SetAngles(kFrequencies);
    h.SetQueries([](int, int head, Position position) { return Query(head, position); });
    h.SetKeys([](int, int head, Position position) {
      return testing::Rotated(Key(head, position), kFrequencies, position);
    });
    h.Prefill(kN, [](const testing::Cell&) { return 0.0; });
    for (int kv_head = 0; kv_head < 2; ++kv_head) {
      std::vector<double> scores(kN - 4, max ? -INFINITY : 0.0);
      for (int head = 2 * kv_head; head < 2 * kv_head + 2; ++head) {
        std::vector<double> one;
        for (Position p = 0; p < kN - 4; ++p) one.push_back(Score(head, kv_head, p, kN));
        const double mean = std::accumulate(one.begin(), one.end(), 0.0) / (kN - 4);
        double square = 0;
        for (const double x : one) square += (x - mean) * (x - mean) / (kN - 4);
        for (size_t i = 0; i < one.size(); ++i) {
          const double normal = (one[i] - mean) / std::sqrt(square);
          scores[i] = max ? std::max(scores[i], normal) : scores[i] + normal;
        }
      }
      Positions kept(kN - 4);
      std::iota(kept.begin(), kept.end(), 0);
      std::sort(kept.begin(), kept.end(), [&](Position a, Position b) {
        return scores[static_cast<size_t>(a)] > scores[static_cast<size_t>(b)];
      });
      kept.resize(kBudget - 4);
      for (Position p = kN - 4; p < kN; ++p) kept.push_back(p);
      std::sort(kept.begin(), kept.end());
      EXPECT_EQ(h.Kept(0, kv_head), kept) << "max " << max << ", head " << kv_head;
    }
  }
}

}  // namespace
}  // namespace winnow::compression
