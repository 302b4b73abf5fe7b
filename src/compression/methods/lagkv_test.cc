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
using testing::NoWeights;
using Positions = std::vector<Position>;

// Two chunks of two entries, no sinks. The second chunk has the range 0..1 in both dimensions. In
// it the first entry, (0.5, 0.5), has no spread; the second, (0, 1), has.
TEST(LagKvTest, SpreadInTheRangeOfTheNextChunkDecides) {
  const std::vector<std::vector<float>> rows = {{0.5f, 0.5f}, {0, 1}, {0, 1}, {1, 0}};
  const auto vectors = [&](int, int, Position position) {
    return rows[static_cast<size_t>(position)];
  };
  Harness h(Make(methods::LagKv(), "lag=2,sinks=0"), {.budget = 4});
  h.SetKeys(vectors);
  h.SetValues(vectors);
  h.Prefill(4, NoWeights());
  EXPECT_TRUE(h.plans().empty());
  // A budget of 3 has chunks of floor(3 / 4), but at least one entry, each judged by the next. One
  // entry has no range in any dimension, so all places are equal.
  Harness small(Make(methods::LagKv(), "lag=1,sinks=0"), {.budget = 3});
  small.SetKeys(vectors);
  small.SetValues(vectors);
  small.Prefill(4, NoWeights());
  EXPECT_EQ(small.Kept(), (Positions{1, 2, 3}));  // the oldest of three equal places goes
}

TEST(LagKvTest, AShortPromptKeepsSinksAndTheNewest) {
  Harness h(Make(methods::LagKv(), "lag=8,sinks=2"), {.budget = 19});
  h.Prefill(17, NoWeights());
  EXPECT_TRUE(h.plans().empty());
  h.Prefill(3, NoWeights());
  EXPECT_EQ(h.Kept().size(), 19u);
  EXPECT_EQ(h.Kept().front(), 0);
  EXPECT_EQ(h.Kept().back(), 19);
}

struct PlainLagKv {
  int64_t n, budget, lag, sinks;
  bool cross;

  static constexpr int kDim = 5;
  static std::vector<float> Key(int head, Position p) {
    return testing::RandomVector({1, head, p}, kDim);
  }
  static std::vector<float> Value(int head, Position p) {
    return testing::RandomVector({2, head, p}, kDim);
  }

  // Softmax over the chunk of the standard deviations of one kind of vectors.
  template <class Vectors>
  std::vector<double> Chunk(int64_t chunk, const Vectors& vectors) const {
    const int64_t first = sinks + chunk * lag;
    std::vector<double> out;
    for (int64_t i = first; i < first + lag; ++i) {
      std::vector<double> x;
      for (int d = 0; d < kDim; ++d) {
        double low = INFINITY, high = -INFINITY;
        for (int64_t j = first + lag; j < first + 2 * lag; ++j) {
          low = std::min(low, double{vectors(j)[static_cast<size_t>(d)]});
          high = std::max(high, double{vectors(j)[static_cast<size_t>(d)]});
        }
        x.push_back((vectors(i)[static_cast<size_t>(d)] - low) / (high - low));
      }
      const double mean = std::accumulate(x.begin(), x.end(), 0.0) / kDim;
      double variance = 0;
      for (const double one : x) variance += (one - mean) * (one - mean) / (kDim - 1);
      out.push_back(std::exp(std::sqrt(variance)));
    }
    const double sum = std::accumulate(out.begin(), out.end(), 0.0);
    for (double& one : out) one /= sum;
    return out;
  }

  Positions Kept(int head) const {
    std::vector<double> score(static_cast<size_t>(n), 2.0);
    const int64_t n_chunks = (n - sinks) / lag;
    for (int64_t i = sinks; i < n; ++i) score[static_cast<size_t>(i)] = 1;
    for (int64_t chunk = 0; chunk + 1 < n_chunks; ++chunk) {
      const auto keys =
          Chunk(chunk, [&](int64_t p) { return Key(head, static_cast<Position>(p)); });
      const auto values =
          Chunk(chunk, [&](int64_t p) { return Value(head, static_cast<Position>(p)); });
      for (size_t i = 0; i < keys.size(); ++i) {
        double of_entry = (keys[i] + values[i]) / 2;
        if (!cross) {
          double n_worse = 0;
          for (size_t j = 0; j < keys.size(); ++j) {
            n_worse += (keys[j] + values[j]) / 2 < of_entry ? 1 : 0;
          }
          of_entry = n_worse / static_cast<double>(lag);
        }
        score[static_cast<size_t>(sinks + chunk * lag) + i] = of_entry;
      }
    }
    Positions kept(static_cast<size_t>(n));
    std::iota(kept.begin(), kept.end(), 0);
    std::sort(kept.begin(), kept.end(), [&](Position a, Position b) {
      const double x = score[static_cast<size_t>(a)], y = score[static_cast<size_t>(b)];
      return x != y ? x > y : a > b;
    });
    kept.resize(static_cast<size_t>(budget));
    std::sort(kept.begin(), kept.end());
    return kept;
  }
};

TEST(LagKvTest, AgreesWithPlainLoops) {
  for (const int64_t n : {30, 61, 64, 77}) {
    for (const bool cross : {false, true}) {
      const PlainLagKv plain = {.n = n, .budget = 24, .lag = 7, .sinks = 3, .cross = cross};
      Harness h(Make(methods::LagKv(), cross ? "lag=7,sinks=3,cross=true" : "lag=7,sinks=3"),
                {.n_q_heads = 4, .n_kv_heads = 2, .dim = PlainLagKv::kDim, .budget = 24});
      h.SetKeys([](int, int head, Position p) { return PlainLagKv::Key(head, p); });
      h.SetValues([](int, int head, Position p) { return PlainLagKv::Value(head, p); });
      h.Prefill(n, NoWeights());
      for (int head = 0; head < 2; ++head) {
        EXPECT_EQ(h.Kept(0, head), plain.Kept(head)) << n << " entries, head " << head;
      }
      h.Decode(NoWeights());
      EXPECT_EQ(h.Kept().size(), 25u);
    }
  }
}

// Vectors without a range, or with NaN and infinities, still keep sinks, the last chunk and the
// budget.
TEST(LagKvTest, ConstantAndBrokenVectorsKeepTheNewestOfEachChunk) {
  for (const float x : {0.0f, NAN, INFINITY}) {
    Harness h(Make(methods::LagKv(), "lag=4,sinks=1"), {.budget = 12});
    const auto vectors = [x](int, int, Position) { return std::vector<float>{x, x}; };
    h.SetKeys(vectors);
    h.SetValues(vectors);
    h.Prefill(17, NoWeights());
    // The sink, the last chunk, and the newest 3, 2 and 2 of the three chunks before it.
    EXPECT_EQ(h.Kept(), (Positions{0, 3, 4, 7, 8, 10, 11, 12, 13, 14, 15, 16}));
  }
}

}  // namespace
}  // namespace winnow::compression
