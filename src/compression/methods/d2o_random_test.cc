// D2O against a second implementation: plain loops over lists of entries, on random keys, values
// and weights.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>
#include <vector>

#include "compression/methods/methods.h"
#include "compression/testing/harness.h"
#include "compression/testing/random.h"

namespace winnow::compression::methods {
namespace {

using testing::Cell;
using testing::Harness;
using testing::Weights;

struct PlainEntry {
  Position position = 0;
  double score = 0;
  std::vector<double> key = {}, value = {};
};

double Cosine(const std::vector<double>& a, const std::vector<double>& b) {
  double ab = 0, aa = 0, bb = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    ab += a[i] * b[i];
    aa += a[i] * a[i];
    bb += b[i] * b[i];
  }
  return aa == 0 || bb == 0 ? 0 : ab / std::sqrt(aa * bb);
}

struct PlainD2oHead {
  std::vector<PlainEntry> entries;
  bool has_tau = false;
  double tau = 0;

  // Evicts `n` entries together, or a single one, and merges them.
  void Evict(int64_t budget, int n) {
    const int sinks = 4;
    const auto n_recent = std::max<int64_t>(1, (budget - sinks) / 4);
    std::vector<size_t> candidates;
    for (size_t i = sinks; i + static_cast<size_t>(n_recent) < entries.size(); ++i) {
      candidates.push_back(i);
    }
    std::stable_sort(candidates.begin(), candidates.end(),
                     [&](size_t a, size_t b) { return entries[a].score < entries[b].score; });
    std::set<size_t> evicted(candidates.begin(), candidates.begin() + n);
    std::vector<std::pair<double, size_t>> best;  // similarity, target
    for (const size_t e : evicted) {
      std::pair<double, size_t> nearest = {-2, 0};
      for (size_t i = 0; i < entries.size(); ++i) {
        if (evicted.contains(i)) continue;
        const double u = Cosine(entries[e].key, entries[i].key);
        if (u > nearest.first) nearest = {u, i};
      }
      best.push_back(nearest);
    }
    if (!has_tau) {
      for (const auto& [u, target] : best) tau += u / static_cast<double>(best.size());
      has_tau = true;
    } else {
      ASSERT_EQ(n, 1);
      tau = 0.5 * best[0].first + 0.5 * tau;
    }
    const std::vector<PlainEntry> before = entries;
    for (size_t target = 0; target < entries.size(); ++target) {
      double sum = std::exp(1.0);
      std::vector<double> key = before[target].key, value = before[target].value;
      for (double& x : key) x *= sum;
      for (double& x : value) x *= sum;
      size_t at = 0;
      bool any = false;
      for (const size_t e : evicted) {
        const auto [u, to] = best[at++];
        if (to != target || u < tau - 1e-7) continue;
        any = true;
        sum += std::exp(u);
        for (size_t i = 0; i < key.size(); ++i) key[i] += std::exp(u) * before[e].key[i];
        for (size_t i = 0; i < value.size(); ++i) value[i] += std::exp(u) * before[e].value[i];
      }
      if (!any) continue;
      for (double& x : key) x /= sum;
      for (double& x : value) x /= sum;
      entries[target].key = key;
      entries[target].value = value;
    }
    for (auto e = evicted.rbegin(); e != evicted.rend(); ++e) {
      entries.erase(entries.begin() + static_cast<ptrdiff_t>(*e));
    }
  }
};

class D2oRandomTest : public ::testing::Test {
 protected:
  static constexpr int kLayers = 2, kQueryHeads = 4, kHeads = 2, kDim = 4;
  static constexpr int64_t kBudget = 20;

  D2oRandomTest()
      : harness_(testing::Make(D2o(), "gate=400"), {.n_layers = kLayers,
                                                    .n_q_heads = kQueryHeads,
                                                    .n_kv_heads = kHeads,
                                                    .dim = kDim,
                                                    .budget = kBudget}),
        plain_(kLayers, std::vector<PlainD2oHead>(kHeads)),
        budgets_(kLayers, kBudget) {
    harness_.SetKeys([](int layer, int head, Position t) { return Vector(layer, head, t, 0); });
    harness_.SetValues([](int layer, int head, Position t) { return Vector(layer, head, t, 1); });
  }

  static std::vector<float> Vector(int layer, int head, Position t, int which) {
    return testing::RandomVector({layer, head, t, which}, kDim);
  }
  // Layer 1 has an attention sink.
  static double Weight(int layer, int q_head, int64_t query, Position entry) {
    const double sink = layer == 1 && entry == 0 ? 30 : 1;
    return sink * testing::Random({layer, q_head, query, entry, 2});
  }

  void Run(Phase phase, int64_t n) {
    const int64_t n_before = harness_.n_seen();
    const Weights weights = [&](const Cell& cell) {
      return Weight(cell.layer, cell.q_head, n_before + cell.query, cell.position);
    };
    if (phase == Phase::kPrefill) {
      harness_.Prefill(n, weights);
    } else {
      harness_.Decode(weights);
    }
    for (int layer = 0; layer < kLayers; ++layer) {
      RunPlain(layer, n_before, n);
      for (int head = 0; head < kHeads; ++head) Compare(layer, head);
    }
  }

  void RunPlain(int layer, int64_t n_before, int64_t n) {
    double density = 0;
    for (int head = 0; head < kHeads; ++head) {
      PlainD2oHead& plain = plain_[layer][head];
      for (int64_t t = n_before; t < n_before + n; ++t) {
        const auto position = static_cast<Position>(t);
        PlainEntry entry = {.position = position};
        for (const float x : Vector(layer, head, position, 0)) entry.key.push_back(x);
        for (const float x : Vector(layer, head, position, 1)) entry.value.push_back(x);
        plain.entries.push_back(entry);
      }
      for (int q_head = 2 * head; q_head < 2 * head + 2; ++q_head) {
        std::vector<double> sums(plain.entries.size());
        for (size_t i = 0; i < sums.size(); ++i) {
          PlainEntry& entry = plain.entries[i];
          for (int64_t query = n_before; query < n_before + n; ++query) {
            if (query < entry.position) continue;
            const double weight = Weight(layer, q_head, query, entry.position);
            sums[i] += weight;
            entry.score += weight / 2;
          }
        }
        const double mean = std::accumulate(sums.begin(), sums.end(), 0.0) / sums.size();
        double squares = 0;
        for (const double sum : sums) squares += (sum - mean) * (sum - mean);
        density += squares / static_cast<double>(sums.size() - 1) / kQueryHeads;
      }
    }
    if (n > 1 && n >= longest_) {
      budgets_[layer] =
          density > 400 ? kBudget : std::max(kBudget, std::min(n_before + n, 2 * kBudget));
    }
    for (PlainD2oHead& plain : plain_[layer]) {
      while (static_cast<int64_t>(plain.entries.size()) > budgets_[layer]) {
        const auto excess =
            static_cast<int>(plain.entries.size()) - static_cast<int>(budgets_[layer]);
        plain.Evict(budgets_[layer], n_before == 0 ? excess : 1);
      }
    }
  }

  void Compare(int layer, int head) {
    const PlainD2oHead& plain = plain_[layer][head];
    std::vector<Position> kept;
    for (const PlainEntry& entry : plain.entries) kept.push_back(entry.position);
    ASSERT_EQ(harness_.Kept(layer, head), kept);
    for (size_t rank = 0; rank < kept.size(); ++rank) {
      const std::vector<float> key = harness_.Key(static_cast<int64_t>(rank), layer, head);
      const std::vector<float> value = harness_.Value(static_cast<int64_t>(rank), layer, head);
      for (size_t i = 0; i < kDim; ++i) {
        ASSERT_NEAR(key[i], plain.entries[rank].key[i], 1e-5) << "rank " << rank;
        ASSERT_NEAR(value[i], plain.entries[rank].value[i], 1e-5) << "rank " << rank;
      }
    }
  }

  Harness harness_;
  std::vector<std::vector<PlainD2oHead>> plain_;  // [layer][kv_head]
  std::vector<int64_t> budgets_;                  // [layer]
  int64_t longest_ = 0;
};

TEST_F(D2oRandomTest, PromptAndStepsAgreeWithPlainLoops) {
  Run(Phase::kPrefill, 70);
  EXPECT_EQ(budgets_, (std::vector<int64_t>{40, 20})) << "the test means to have both";
  for (int step = 0; step < 250 && !HasFatalFailure(); ++step) Run(Phase::kDecode, 1);
}

// Where the first chunk fits, later overflow is evicted one entry at a time too, and the first
// eviction sets the threshold.
TEST_F(D2oRandomTest, AChunkThatFitsBeforeOneThatDoesNot) {
  Run(Phase::kPrefill, 16);
  for (int chunk = 0; chunk < 4 && !HasFatalFailure(); ++chunk) Run(Phase::kPrefill, 16);
}

// Later chunks evict one entry at a time, as decode does: each merge sees those before.
TEST_F(D2oRandomTest, ChunksAgreeWithPlainLoops) {
  for (int chunk = 0; chunk < 12 && !HasFatalFailure(); ++chunk) {
    Run(Phase::kPrefill, 30);
    longest_ = 30;
  }
}

TEST_F(D2oRandomTest, ChunksOfOneAreSteps) {
  longest_ = 1 << 20;
  for (int step = 0; step < 200 && !HasFatalFailure(); ++step) Run(Phase::kPrefill, 1);
}

TEST_F(D2oRandomTest, StreamingFromTheFirstToken) {
  longest_ = 1 << 20;
  for (int step = 0; step < 200 && !HasFatalFailure(); ++step) Run(Phase::kDecode, 1);
}

}  // namespace
}  // namespace winnow::compression::methods
