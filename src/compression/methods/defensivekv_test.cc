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

constexpr int kDim = 3, kModelDim = 4, kGroup = 2, kHeads = 2;
constexpr Position kN = 50, kWindow = 5;
constexpr int64_t kBudget = 17;

std::vector<float> Value(int layer, int head, Position position) {
  return testing::RandomVector({layer, head, position}, kDim);
}
std::vector<float> Projection(int layer, int q_head) {
  return testing::RandomVector({9, layer, q_head}, kModelDim * kDim);
}

// Weights that sum to one; some heads and layers are sharper than others.
testing::Weights Sharp(uint64_t seed) {
  const testing::Weights random = testing::RandomWeights(seed);
  return [random](const testing::Cell& cell) {
    const auto raw = [&](Position position) {
      testing::Cell other = cell;
      other.position = position;
      return std::pow(random(other), 1 + cell.q_head + 3 * cell.layer);
    };
    double sum = 0;
    for (Position p = 0; p <= static_cast<Position>(cell.query); ++p) sum += raw(p);
    return raw(cell.position) / sum;
  };
}

struct Plain {
  testing::Weights weights;
  double mass;

  double At(int layer, int q_head, Position query, Position key) const {
    return weights(
        {.layer = layer, .q_head = q_head, .query = query, .rank = key, .position = key});
  }
  // [kv_head][entry before the window]
  std::vector<std::vector<double>> Layer(int layer) const {
    const auto n = static_cast<size_t>(kN - kWindow);
    std::vector<std::vector<double>> scores(kHeads), means(kHeads);
    double window_mass = 0, largest = 0;
    for (int head = 0; head < kHeads; ++head) {
      auto& s = scores[static_cast<size_t>(head)];
      auto& mean = means[static_cast<size_t>(head)];
      s.assign(n, 0.0);
      mean.assign(n, 0.0);
      for (int q_head = kGroup * head; q_head < kGroup * (head + 1); ++q_head) {
        for (Position query = kN - kWindow; query < kN; ++query) {
          double sum = 0, smooth_sum = 0;
          std::vector<double> smooth(n, 0.0);
          for (size_t j = 0; j < n; ++j) {
            const double a = At(layer, q_head, query, static_cast<Position>(j));
            sum += a;
            mean[j] += a / (kGroup * kWindow);
            for (size_t e = j < 2 ? 0 : j - 2; e <= j + 2 && e < n; ++e) smooth[e] += a / 5;
          }
          window_mass += (1 - sum) / (kGroup * kWindow * kHeads);
          for (const double x : smooth) smooth_sum += x;
          for (size_t j = 0; j < n; ++j) s[j] = std::max(s[j], smooth[j] / smooth_sum * sum);
        }
      }
      const double average = std::accumulate(s.begin(), s.end(), 0.0) / static_cast<double>(n);
      for (double& x : s) x = std::max(x, average);
    }
    for (size_t j = 0; j < n; ++j) {
      std::vector<double> norms(kHeads, 0.0);
      for (int q_head = 0; q_head < kHeads * kGroup; ++q_head) {
        const auto w = Projection(layer, q_head);
        const auto v = Value(layer, q_head / kGroup, static_cast<Position>(j));
        for (size_t row = 0; row < kModelDim; ++row) {
          double dot = 0;
          for (size_t i = 0; i < kDim; ++i) dot += double{w[row * kDim + i]} * v[i];
          norms[static_cast<size_t>(q_head / kGroup)] += std::abs(dot) / kGroup;
        }
      }
      for (size_t head = 0; head < kHeads; ++head) {
        scores[head][j] *= norms[head] / (norms[0] + norms[1]);
        largest = std::max(largest, scores[head][j]);
      }
    }
    for (size_t head = 0; head < kHeads; ++head) {
      std::vector<size_t> order(n);
      std::iota(order.begin(), order.end(), size_t{0});
      std::sort(order.begin(), order.end(), [&](size_t a, size_t b) {
        return means[head][a] != means[head][b] ? means[head][a] > means[head][b] : a > b;
      });
      const double all = std::accumulate(means[head].begin(), means[head].end(), 0.0);
      double sum = 0;
      for (size_t i = 0; i < static_cast<size_t>(kBudget - kWindow); ++i) {
        sum += means[head][order[i]] / all;
        if (sum >= mass - window_mass) break;
        scores[head][order[i]] = largest;
      }
    }
    return scores;
  }
};

struct Entry {
  double score;
  Position position;
  int layer, head;
};

// The best `n_keep` of all entries, plus the windows: [layer][kv_head].
std::vector<std::vector<Positions>> Best(std::vector<Entry> entries, size_t n_keep, int n_layers) {
  std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) {
    if (a.score != b.score) return a.score > b.score;
    if (a.position != b.position) return a.position > b.position;
    return a.layer != b.layer ? a.layer < b.layer : a.head < b.head;
  });
  entries.resize(n_keep);
  std::vector<std::vector<Positions>> kept(static_cast<size_t>(n_layers),
                                           std::vector<Positions>(kHeads));
  for (const Entry& entry : entries) {
    kept[static_cast<size_t>(entry.layer)][static_cast<size_t>(entry.head)].push_back(
        entry.position);
  }
  for (auto& layer : kept) {
    for (Positions& head : layer) {
      for (Position p = kN - kWindow; p < kN; ++p) head.push_back(p);
      std::sort(head.begin(), head.end());
    }
  }
  return kept;
}

class DefensiveKvTest : public ::testing::TestWithParam<bool> {};

TEST_P(DefensiveKvTest, AgreesWithPlainLoops) {
  const bool all_layers = GetParam();
  constexpr int kLayers = 3;
  for (uint64_t seed = 0; seed < 3; ++seed) {
    for (const char* mass : {"0.9", "0.5"}) {
      const Plain plain = {.weights = Sharp(seed), .mass = std::stod(mass)};
      const std::string spec =
          std::string("window=5,mass=") + mass + (all_layers ? ",layer=true" : "");
      Harness h(Make(methods::DefensiveKv(), spec), {.n_layers = kLayers,
                                                     .n_q_heads = kHeads * kGroup,
                                                     .n_kv_heads = kHeads,
                                                     .dim = kDim,
                                                     .budget = kBudget});
      h.SetValues(Value);
      h.SetProjection(kModelDim, Projection);
      h.Prefill(kN, plain.weights);
      std::vector<std::vector<Positions>> expected;
      std::vector<Entry> all;
      for (int layer = 0; layer < kLayers; ++layer) {
        const auto scores = plain.Layer(layer);
        std::vector<Entry> entries;
        for (int head = 0; head < kHeads; ++head) {
          for (size_t j = 0; j < scores[0].size(); ++j) {
            entries.push_back({scores[static_cast<size_t>(head)][j], static_cast<Position>(j),
                               all_layers ? layer : 0, head});
          }
        }
        if (!all_layers) {
          expected.push_back(Best(entries, kHeads * (kBudget - kWindow), 1)[0]);
        }
        all.insert(all.end(), entries.begin(), entries.end());
      }
      if (all_layers) expected = Best(all, kLayers * kHeads * (kBudget - kWindow), kLayers);
      int64_t n_kept = 0;
      for (int layer = 0; layer < kLayers; ++layer) {
        for (int head = 0; head < kHeads; ++head) {
          EXPECT_EQ(h.Kept(layer, head),
                    expected[static_cast<size_t>(layer)][static_cast<size_t>(head)])
              << "seed " << seed << ", mass " << mass << ", layer " << layer << ", head " << head;
          n_kept += h.cache().n_slots(layer, head);
        }
      }
      EXPECT_EQ(n_kept, kBudget * kLayers * kHeads);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Budgets, DefensiveKvTest, ::testing::Bool(), [](const auto& layer) {
  return layer.param ? "OfAllLayers" : "OfALayer";
});

// One row in which one query head attends to entry 3 is enough, however little the others do.
TEST(DefensiveKvTest, TheWorstCaseCounts) {
  Harness h(Make(methods::DefensiveKv(), "window=4,kernel=1,mass=0"),
            {.n_q_heads = 2, .n_kv_heads = 1, .budget = 6});
  h.SetValues([](int, int, Position) { return std::vector<float>{1, 0}; });
  h.Prefill(20, [](const testing::Cell& cell) {
    if (cell.position == 3) return cell.q_head == 1 && cell.query == 17 ? 0.9 : 0.0;
    return cell.position == 8 ? 0.3 : 0.01;
  });
  EXPECT_EQ(h.Kept(), (Positions{3, 8, 16, 17, 18, 19}));
}

}  // namespace
}  // namespace winnow::compression
