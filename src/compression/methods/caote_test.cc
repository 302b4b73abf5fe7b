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

// With equal weights the output is the mean of the values, (1, 0): values far from it stay.
TEST(CaoteTest, OfEqualWeightsTheUnusualValueStays) {
  Harness h(Make(methods::Caote(), "base=last"), {.budget = 2});
  h.SetValues([](int, int, Position position) {
    const std::vector<std::vector<float>> values = {{1, 0}, {3, 0}, {-1, 0.5f}, {1, -0.5f}};
    return values[static_cast<size_t>(position)];
  });
  h.Prefill(4, testing::LastQuery({0.25, 0.25, 0.25, 0.25}, 4));
  EXPECT_EQ(h.Kept(), (Positions{1, 2}));
}

// An entry with all the weight stays; entries without weight are evicted.
TEST(CaoteTest, AllTheWeightStaysAndNoWeightGoes) {
  for (const char* form : {"form=scores,window=1", "form=errors,window=1"}) {
    Harness h(Make(methods::Caote(), form), {.budget = 2});
    h.SetValues([](int, int, Position position) {
      return std::vector<float>{1 + static_cast<float>(position), 9};
    });
    h.Prefill(5, testing::LastQuery({0, 1, 0, 0, 0}, 5));
    EXPECT_EQ(h.Kept(), (Positions{1, 4})) << form;
  }
}

constexpr int kDim = 3;
constexpr int kGroup = 2;

std::vector<float> Value(int head, Position position) {
  return testing::RandomVector({head, position}, kDim);
}

// o without j - o|, computed from both outputs.
double Change(const Positions& list, const std::vector<double>& weights, int head, size_t without) {
  const double sum = std::accumulate(weights.begin(), weights.end(), 0.0);
  double square = 0;
  for (size_t d = 0; d < kDim; ++d) {
    double all = 0, rest = 0;
    for (size_t i = 0; i < list.size(); ++i) {
      const double part = weights[i] * Value(head, list[i])[d];
      all += part / sum;
      if (i != without) rest += part / (sum - weights[without]);
    }
    square += (rest - all) * (rest - all);
  }
  return std::sqrt(square);
}

// The `n_keep` best of the first scores.size() entries, and all entries after those.
Positions Best(const Positions& list, const std::vector<double>& scores, size_t n_keep) {
  Positions ranks(scores.size());
  std::iota(ranks.begin(), ranks.end(), 0);
  std::stable_sort(ranks.begin(), ranks.end(), [&](Position a, Position b) {
    return scores[static_cast<size_t>(a)] > scores[static_cast<size_t>(b)];
  });
  ranks.resize(n_keep);
  std::sort(ranks.begin(), ranks.end());
  Positions kept;
  for (const Position rank : ranks) kept.push_back(list[static_cast<size_t>(rank)]);
  kept.insert(kept.end(), list.begin() + static_cast<int64_t>(scores.size()), list.end());
  return kept;
}

// Prompts with the window's scores: the change of the output is computed by leaving the entry out.
TEST(CaoteTest, PromptsAgreeWithLeavingEntriesOut) {
  constexpr int64_t kN = 40, kWindow = 6, kBudget = 18;
  Positions list(kN);
  std::iota(list.begin(), list.end(), 0);
  for (uint64_t seed = 0; seed < 4; ++seed) {
    for (const bool errors : {false, true}) {
      // Rows sum to one, as attention's do.
      const testing::Weights random = testing::RandomWeights(seed);
      const testing::Weights weights = [&](const testing::Cell& cell) {
        double sum = 0;
        testing::Cell other = cell;
        for (Position p = 0; p <= static_cast<Position>(cell.query); ++p) {
          other.position = p;
          sum += random(other);
        }
        return random(cell) / sum;
      };
      Harness h(Make(methods::Caote(), errors ? "window=6,form=errors" : "window=6"),
                {.n_q_heads = 4, .n_kv_heads = 2, .dim = kDim, .budget = kBudget});
      h.SetValues([](int, int head, Position position) { return Value(head, position); });
      h.Prefill(kN, weights);
      for (int head = 0; head < 2; ++head) {
        std::vector<std::vector<double>> rows;  // of the window's queries and query heads
        std::vector<double> mean(kN, 0.0);
        for (int q_head = head * kGroup; q_head < (head + 1) * kGroup; ++q_head) {
          for (int64_t query = kN - kWindow; query < kN; ++query) {
            std::vector<double> row(kN, 0.0);
            for (int64_t rank = 0; rank <= query; ++rank) {
              row[static_cast<size_t>(rank)] = weights({.layer = 0,
                                                        .q_head = q_head,
                                                        .query = query,
                                                        .rank = rank,
                                                        .position = static_cast<Position>(rank)});
            }
            for (size_t i = 0; i < kN; ++i) mean[i] += row[i];
            rows.push_back(row);
          }
        }
        std::vector<double> scores;
        for (size_t j = 0; j < kN - kWindow; ++j) {
          double score = 0;
          for (const auto& row : rows) score += std::pow(Change(list, row, head, j), 2);
          scores.push_back(errors ? score : Change(list, mean, head, j));
        }
        EXPECT_EQ(h.Kept(0, head), Best(list, scores, kBudget - kWindow))
            << "errors " << errors << ", seed " << seed;
      }
    }
  }
}

// Decode steps with the newest row's weights; also with the mean of the values (FastCAOTE).
TEST(CaoteTest, GenerationAgreesWithPlainLists) {
  for (const bool fast : {false, true}) {
    Harness h(Make(methods::Caote(), fast ? "base=last,fast=true,sinks=2" : "base=last,sinks=2"),
              {.n_q_heads = 4, .n_kv_heads = 2, .dim = kDim, .budget = 9});
    h.SetValues([](int, int head, Position position) { return Value(head, position); });
    std::vector<Positions> lists(2);
    for (Position position = 0; position < 60; ++position) {
      const testing::Weights weights = testing::RandomWeights(static_cast<uint64_t>(position));
      h.Decode(weights);
      for (int head = 0; head < 2; ++head) {
        Positions& list = lists[static_cast<size_t>(head)];
        list.push_back(position);
        if (list.size() > 9) {
          std::vector<double> row;
          for (const Position p : list) {
            row.push_back((weights({.q_head = 2 * head, .position = p}) +
                           weights({.q_head = 2 * head + 1, .position = p})) /
                          2);
          }
          const double sum = std::accumulate(row.begin(), row.end(), 0.0);
          size_t victim = 2;
          double min = INFINITY;
          for (size_t j = 2; j < list.size(); ++j) {
            double score = Change(list, row, head, j);
            if (fast) {
              double square = 0;
              for (size_t d = 0; d < kDim; ++d) {
                double mean = 0;
                for (const Position p : list) mean += Value(head, p)[d] / 10;
                square += std::pow(Value(head, list[j])[d] - mean, 2);
              }
              score = row[j] / (sum - row[j]) * std::sqrt(square);
            }
            if (score < min) {
              min = score;
              victim = j;
            }
          }
          list.erase(list.begin() + static_cast<int64_t>(victim));
        }
        ASSERT_EQ(h.Kept(0, head), list) << "after " << position;
      }
    }
  }
}

TEST(CaoteTest, ConflictingParametersAreRefused) {
  EXPECT_FALSE(MakeMethod("caote:base=last,form=errors"));
  EXPECT_FALSE(MakeMethod("caote:recent=4"));
  EXPECT_TRUE(MakeMethod("caote:base=heavy,recent=4"));
}

}  // namespace
}  // namespace winnow::compression
