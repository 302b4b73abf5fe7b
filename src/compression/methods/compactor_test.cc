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
using Matrix = std::vector<std::vector<double>>;

constexpr size_t kDim = 4;  // two pairs: (0, 2) and (1, 3)
const std::vector<double> kFrequencies = {1.1, 0.03};
constexpr Position kSinks = 2, kRecent = 1;
constexpr int kChunk = 7;

std::vector<float> Query(int head, Position position) {
  return testing::RandomVector({3, head, position}, kDim);
}
std::vector<float> KeyBefore(int head, Position position) {
  return testing::RandomVector({1, head, position}, kDim);
}
std::vector<float> Value(int head, Position position) {
  return testing::RandomVector({2, head, position}, kDim);
}

// Gauss-Jordan elimination.
Matrix Inverse(Matrix m) {
  const size_t n = m.size();
  for (size_t i = 0; i < n; ++i) {
    m[i].resize(2 * n, 0.0);
    m[i][n + i] = 1;
  }
  for (size_t i = 0; i < n; ++i) {
    const double pivot = m[i][i];
    for (double& x : m[i]) x /= pivot;
    for (size_t j = 0; j < n; ++j) {
      const double factor = m[j][i];
      for (size_t k = 0; j != i && k < 2 * n; ++k) m[j][k] -= factor * m[i][k];
    }
  }
  for (std::vector<double>& row : m) row.erase(row.begin(), row.begin() + static_cast<int64_t>(n));
  return m;
}

std::vector<double> PlainLeverage(int head, Position n) {
  Matrix x;
  std::vector<double> mean(kDim, 0.0);
  for (Position p = kSinks; p < n - kRecent; ++p) {
    const auto key = KeyBefore(head, p);
    x.emplace_back(key.begin(), key.end());
    for (size_t i = 0; i < kDim; ++i) mean[i] += key[i] / double(n - kRecent - kSinks);
  }
  Matrix gram(kDim, std::vector<double>(kDim, 0.0));
  for (auto& row : x) {
    for (size_t i = 0; i < kDim; ++i) row[i] -= mean[i];
    for (size_t i = 0; i < kDim; ++i) {
      for (size_t j = 0; j < kDim; ++j) gram[i][j] += row[i] * row[j];
    }
  }
  for (size_t i = 0; i < kDim; ++i) gram[i][i] += 0.01;
  const Matrix inverse = Inverse(gram);
  std::vector<double> out;
  for (const auto& row : x) {
    double sum = 0;
    for (size_t i = 0; i < kDim; ++i) {
      for (size_t j = 0; j < kDim; ++j) sum += row[i] * inverse[i][j] * row[j];
    }
    out.push_back(sum);
  }
  return out;
}

std::vector<double> PlainAttended(int kv_head, Position n) {
  std::vector<double> received;
  const Position end = n - kRecent;
  for (Position key = kSinks; key < end; ++key) {
    double sum = 0;
    const Position first = kSinks + (key - kSinks) / kChunk * kChunk;
    const Position last = std::min<Position>(end, first + kChunk);
    for (int head = 2 * kv_head; head < 2 * kv_head + 2; ++head) {
      for (Position query = first; query < last; ++query) {
        const auto q = testing::Rotated(Query(head, query), kFrequencies, query);
        double all = 0, one = 0;
        for (Position other = first; other < last; ++other) {
          const auto k = testing::Rotated(KeyBefore(kv_head, other), kFrequencies, other);
          double dot = 0;
          for (size_t i = 0; i < kDim; ++i) dot += double{q[i]} * k[i];
          all += std::exp(dot);
          if (other == key) one = std::exp(dot);
        }
        sum += one / all / 2;
      }
    }
    double square = 0;
    for (const float v : Value(kv_head, key)) square += double{v} * v;
    received.push_back(sum * std::sqrt(square));
  }
  std::vector<double> smooth(received.size(), 0.0);
  for (size_t i = 0; i < smooth.size(); ++i) {
    for (size_t j = i == 0 ? 0 : i - 1; j <= i + 1 && j < smooth.size(); ++j) {
      smooth[i] += received[j] / 3;
    }
  }
  return smooth;
}

void Normalise(Matrix& heads) {
  double mean = 0, square = 0, n = 0;
  for (const auto& head : heads) n += static_cast<double>(head.size());
  for (const auto& head : heads) mean += std::accumulate(head.begin(), head.end(), 0.0) / n;
  for (const auto& head : heads) {
    for (const double x : head) square += (x - mean) * (x - mean) / (n - 1);
  }
  for (auto& head : heads) {
    for (double& x : head) x = (x - mean) / std::sqrt(square);
  }
}

TEST(CompactorTest, AgreesWithPlainLoops) {
  constexpr int64_t kBudget = 15;
  for (const Position n : {28, 31, 45}) {  // with a shorter last chunk, and with whole chunks only
    Harness h(Make(methods::Compactor(), "sinks=2,recent=1,chunk=7"),
              {.n_q_heads = 4, .n_kv_heads = 2, .dim = kDim, .budget = kBudget});
    h.SetAngles(kFrequencies);
    h.SetQueries([](int, int head, Position position) { return Query(head, position); });
    h.SetKeys([](int, int head, Position position) {
      return testing::Rotated(KeyBefore(head, position), kFrequencies, position);
    });
    h.SetValues([](int, int head, Position position) { return Value(head, position); });
    h.Prefill(n, [](const testing::Cell&) { return 0.0; });
    Matrix leverage = {PlainLeverage(0, n), PlainLeverage(1, n)};
    Matrix attended = {PlainAttended(0, n), PlainAttended(1, n)};
    Normalise(leverage);
    Normalise(attended);
    const double blend = 1 - double{kBudget} / n;
    for (size_t head = 0; head < 2; ++head) {
      std::vector<double> scores;
      for (size_t i = 0; i < leverage[head].size(); ++i) {
        scores.push_back(blend * leverage[head][i] + attended[head][i]);
      }
      Positions kept(scores.size());
      std::iota(kept.begin(), kept.end(), 0);
      std::sort(kept.begin(), kept.end(), [&](Position a, Position b) {
        return scores[static_cast<size_t>(a)] > scores[static_cast<size_t>(b)];
      });
      kept.resize(kBudget - kSinks - kRecent);
      for (Position& p : kept) p += kSinks;
      for (Position p = 0; p < kSinks; ++p) kept.push_back(p);
      for (Position p = n - kRecent; p < n; ++p) kept.push_back(p);
      std::sort(kept.begin(), kept.end());
      EXPECT_EQ(h.Kept(0, static_cast<int>(head)), kept) << n << " entries, head " << head;
    }
  }
}

// A sketch with as many dimensions as the keys changes nothing. A smaller one changes the
// selection, in the same way in every run.
TEST(CompactorTest, TheSketchIsTheSameEachTime) {
  const auto kept = [](const char* spec) {
    Harness h(Make(methods::Compactor(), spec), {.dim = kDim, .budget = 20});
    h.SetQueries([](int, int head, Position position) { return Query(head, position); });
    h.SetKeys([](int, int head, Position position) { return KeyBefore(head, position); });
    h.SetValues([](int, int head, Position position) { return Value(head, position); });
    h.Prefill(60, [](const testing::Cell&) { return 0.0; });
    return h.Kept();
  };
  EXPECT_EQ(kept("blend=100,sketch=2"), kept("blend=100,sketch=2"));
  EXPECT_NE(kept("blend=100,sketch=2"), kept("blend=100"));
  EXPECT_EQ(kept("blend=100,sketch=4"), kept("blend=100"));
}

}  // namespace
}  // namespace winnow::compression
