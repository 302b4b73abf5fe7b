#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
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

testing::Weights Equal() {
  return [](const testing::Cell&) { return 0.25; };
}

// Redundancy alone: keys 0, 1 and 3 are similar, 2 is not. The newest of the similar keys stays.
TEST(RkvTest, NewestOfSimilarKeysStays) {
  Harness h(Make(methods::Rkv(), "window=1,lambda=0"), {.budget = 3});
  h.SetKeys([](int, int, Position position) {
    const std::vector<std::vector<float>> keys = {{1, 0}, {2, 0}, {0, 1}, {3, 0}, {0, -1}};
    return keys[static_cast<size_t>(position)];
  });
  h.Prefill(5, Equal());
  EXPECT_EQ(h.Kept(), (Positions{2, 3, 4}));
}

TEST(RkvTest, AttentionAloneKeepsWhatTheWindowAttendsTo) {
  Harness h(Make(methods::Rkv(), "window=2,lambda=1,kernel=1"), {.budget = 4});
  h.Prefill(7, testing::ByPosition({0.5, 0, 0.25, 0, 0, 0.125, 0.125}));
  EXPECT_EQ(h.Kept(), (Positions{0, 2, 5, 6}));
}

// The rules on plain lists, with all cosines in one matrix.
struct PlainRkv {
  int head = 0;
  int64_t budget = 0;
  size_t window = 0;
  size_t kernel = 0;
  double lambda = 0;
  int64_t buffer = 0;
  size_t sinks = 0;
  size_t recent = 0;  // at least the window
  Positions list = {};
  std::vector<std::map<Position, double>> rows = {};  // newest last

  static constexpr int kDim = 6;
  static constexpr int kGroup = 2;
  static std::vector<float> Key(int head, Position position) {
    std::vector<float> key = testing::RandomVector({head, position}, kDim);
    key[0] += 1;  // makes many keys similar
    return key;
  }

  void Read(int64_t n, int64_t n_seen, const testing::Weights& weights) {
    for (int64_t i = 0; i < n; ++i) {
      list.push_back(static_cast<Position>(n_seen + i));
      if (n - i > static_cast<int64_t>(window)) continue;
      std::map<Position, double> row;
      for (const Position p : list) {
        for (int q = head * kGroup; q < (head + 1) * kGroup; ++q) {
          const double weight =
              weights({.layer = 0, .q_head = q, .query = i, .rank = 0, .position = p});
          row[p] = std::max(row[p], weight);
        }
      }
      rows.push_back(row);
      if (rows.size() > window) rows.erase(rows.begin());
    }
  }

  static double Cosine(const std::vector<float>& a, const std::vector<float>& b) {
    double dot = 0, x = 0, y = 0;
    for (size_t d = 0; d < a.size(); ++d) {
      dot += double{a[d]} * b[d];
      x += double{a[d]} * a[d];
      y += double{b[d]} * b[d];
    }
    return dot / std::sqrt(x * y);
  }

  std::vector<double> Scores() const {
    const size_t n = list.size(), prefix = n - window;
    std::vector<std::vector<double>> cosines(n, std::vector<double>(n, 0.0));
    for (size_t i = 0; i < n; ++i) {
      size_t newest = n;
      for (size_t j = 0; j < n; ++j) {
        if (i == j) continue;
        cosines[i][j] = Cosine(Key(head, list[i]), Key(head, list[j]));
        if (cosines[i][j] > 0.5) newest = j;
      }
      if (newest < n) cosines[i][newest] = 0;
    }
    std::vector<double> redundancy(n, 0.0);
    double sum = 0;
    for (size_t j = 0; j < n; ++j) {
      for (size_t i = 0; i < n; ++i) redundancy[j] += cosines[i][j] / static_cast<double>(n);
      sum += std::exp(redundancy[j]);
    }
    std::vector<double> votes(prefix, 0.0);
    for (const auto& row : rows) {
      double mass = 0;
      const auto weight = [&](size_t j) {
        const auto found = row.find(list[j]);
        return found == row.end() ? 0.0 : found->second;
      };
      for (size_t j = 0; j < prefix; ++j) mass += weight(j);
      for (size_t j = 0; j < prefix; ++j) {
        votes[j] += weight(j) / mass / static_cast<double>(rows.size());
      }
    }
    std::vector<double> scores;
    for (size_t j = 0; j < prefix; ++j) {
      double pooled = 0;
      for (size_t e = 0; e < prefix; ++e) {
        if (e + kernel / 2 >= j && e <= j + kernel / 2) pooled = std::max(pooled, votes[e]);
      }
      scores.push_back(lambda * pooled - (1 - lambda) * std::exp(redundancy[j]) / sum);
    }
    return scores;
  }

  void Evict(bool decode) {
    if (static_cast<int64_t>(list.size()) <= budget) return;
    const size_t n_recent = std::max(recent, window);
    const auto n_protected = static_cast<int64_t>(sinks + recent > 0 ? sinks + n_recent : 0);
    const int64_t size = budget - (decode ? std::min(buffer, (budget - n_protected) / 2) : 0);
    const std::vector<double> scores = Scores();
    Positions ranks(list.size() - sinks - n_recent);
    std::iota(ranks.begin(), ranks.end(), static_cast<Position>(sinks));
    std::sort(ranks.begin(), ranks.end(), [&](Position a, Position b) {
      return scores[static_cast<size_t>(a)] > scores[static_cast<size_t>(b)];
    });
    ranks.resize(static_cast<size_t>(size) - sinks - n_recent);
    std::sort(ranks.begin(), ranks.end());
    Positions kept(list.begin(), list.begin() + static_cast<int64_t>(sinks));
    for (const Position rank : ranks) kept.push_back(list[static_cast<size_t>(rank)]);
    kept.insert(kept.end(), list.end() - static_cast<int64_t>(n_recent), list.end());
    list = kept;
  }
};

void AgreeWithPlainLoops(size_t sinks, size_t recent) {
  for (uint64_t seed = 0; seed < 4; ++seed) {
    for (const char* lambda : {"0.07", "0.6"}) {
      Harness h(Make(methods::Rkv(), "window=4,kernel=3,buffer=6,sinks=" + std::to_string(sinks) +
                                         ",recent=" + std::to_string(recent) + ",lambda=" + lambda),
                {.n_q_heads = 4, .n_kv_heads = 2, .dim = PlainRkv::kDim, .budget = 24});
      h.SetKeys([](int, int head, Position position) { return PlainRkv::Key(head, position); });
      std::vector<PlainRkv> plain;
      plain.reserve(2);
      for (int head = 0; head < 2; ++head) {
        plain.push_back({.head = head,
                         .budget = 24,
                         .window = 4,
                         .kernel = 3,
                         .lambda = std::stod(lambda),
                         .buffer = 6,
                         .sinks = sinks,
                         .recent = recent});
      }
      const auto step = [&](int64_t n, uint64_t number) {
        const testing::Weights weights = testing::RandomWeights(seed * 1000 + number);
        const int64_t n_seen = h.n_seen();
        n > 1 ? h.Prefill(n, weights) : h.Decode(weights);
        for (PlainRkv& one : plain) {
          one.Read(n, n_seen, weights);
          one.Evict(n == 1);
          ASSERT_EQ(h.Kept(0, one.head), one.list) << "call " << number;
        }
      };
      step(50, 0);
      for (uint64_t i = 1; i < 30; ++i) step(1, i);
      step(20, 100);
    }
  }
}

TEST(RkvTest, AgreesWithPlainLoops) { AgreeWithPlainLoops(0, 0); }

// Protected entries take part in votes and similarities like all others, so regions change no
// scores.
TEST(RkvTest, RegionsChangeNoScores) {
  AgreeWithPlainLoops(3, 0);
  AgreeWithPlainLoops(2, 7);
  AgreeWithPlainLoops(3, 14);
  AgreeWithPlainLoops(5, 18);
}

// However many entries go at once, half of what the regions leave is chosen by score.
TEST(RkvTest, BetweenRegionsEntriesAreChosen) {
  // The smallest number of kept entries, over 300 steps, that are outside the run ending with the
  // newest.
  const auto least = [](const std::string& spec, int64_t budget) {
    Harness h(Make(methods::Rkv(), spec), {.dim = PlainRkv::kDim, .budget = budget});
    h.SetKeys([](int, int, Position position) { return PlainRkv::Key(0, position); });
    h.Prefill(2 * budget, testing::RandomWeights(1));
    int64_t found = budget;
    for (uint64_t i = 0; i < 300; ++i) {
      h.Decode(testing::RandomWeights(2 + i));
      const Positions kept = h.Kept();
      EXPECT_LE(std::ssize(kept), budget);
      int64_t n_run = 1;
      while (n_run < std::ssize(kept) &&
             kept[kept.size() - static_cast<size_t>(n_run) - 1] == kept.back() - n_run) {
        ++n_run;
      }
      found = std::min(found, std::ssize(kept) - n_run);
    }
    return found;
  };
  // 4 sinks and 124 recent entries leave 128, of which 64 stay; some of these adjoin a region.
  EXPECT_GE(least("sinks=4,recent=0.5", 256), 4 + 32);
  EXPECT_GE(least("sinks=4,recent=0.5", 40), 4 + 5);
}

// One entry between the regions: half of it, rounded down, is 0, so one entry goes at a time.
TEST(RkvTest, LargeRegionsLeaveOneEntry) {
  Harness h(Make(methods::Rkv(), "sinks=4,recent=35"), {.budget = 40});
  h.Prefill(60, Equal());
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(h.Kept().size(), 40u);
    h.Decode(Equal());
  }
}

TEST(RkvTest, RefusesABudgetThatLeavesNothingToChoose) {
  const auto min_budget = [](const char* spec) {
    return Make(methods::Rkv(), spec)->traits().budget.min;
  };
  EXPECT_EQ(min_budget("sinks=4"), 6);
  EXPECT_EQ(min_budget("sinks=0"), 2);
  EXPECT_EQ(min_budget("sinks=4,recent=9"), 14);
}

TEST(RkvTest, GenerationStaysWithinTheBudgetAndMakesRoomAtOnce) {
  Harness h(Make(methods::Rkv(), "window=2,buffer=100"), {.budget = 10});
  h.Prefill(10, Equal());
  EXPECT_TRUE(h.plans().empty());
  h.Decode(Equal());
  EXPECT_EQ(h.Kept().size(), 5u);  // at most half is evicted
  for (int i = 0; i < 5; ++i) {
    h.Decode(Equal());
    EXPECT_TRUE(h.plans().empty());
  }
  Harness grows(Make(methods::Rkv(), "window=2,decode=false"), {.budget = 10});
  grows.Prefill(20, Equal());
  grows.Decode(Equal());
  EXPECT_EQ(grows.Kept().size(), 11u);
}

}  // namespace
}  // namespace winnow::compression
