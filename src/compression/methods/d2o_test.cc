#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <set>
#include <string>
#include <vector>

#include "compression/methods/methods.h"
#include "compression/registry.h"
#include "compression/testing/harness.h"
#include "compression/testing/random.h"

namespace winnow::compression::methods {
namespace {

using testing::Cell;
using testing::Harness;
using testing::Weights;

// A prompt of n tokens whose column sums are `sums`.
Weights Sums(std::vector<double> sums) {
  const auto n = static_cast<int64_t>(sums.size());
  return testing::LastQuery(std::move(sums), n);
}

// The worked example of the split: sinks, important, recent.
TEST(D2oTest, SplitsABudgetThreeToOne) {
  struct Case {
    int64_t budget, n_important, n_recent;
  };
  for (const Case& c : {Case{24, 15, 5}, Case{100, 72, 24}}) {
    const int64_t n = c.budget + 20;
    // Sinks and the newest would be the first to go; the best of the rest are the oldest.
    std::vector<double> sums(static_cast<size_t>(n));
    for (int64_t i = 0; i < n; ++i) {
      const bool middle = i >= 4 && i < n - c.n_recent;
      sums[static_cast<size_t>(i)] = middle ? static_cast<double>(n - i) : 0;
    }
    Harness h(testing::Make(D2o(), "layer_policy=uniform"), {.budget = c.budget});
    h.Prefill(n, Sums(sums));
    std::vector<Position> expected(static_cast<size_t>(4 + c.n_important));
    std::iota(expected.begin(), expected.end(), 0);
    for (int64_t i = n - c.n_recent; i < n; ++i) expected.push_back(static_cast<Position>(i));
    EXPECT_EQ(h.Kept(), expected) << c.budget;
  }
}

// The worked example of the gate. F = a^2 / n if one column has all the attention.
TEST(D2oTest, DenseLayersGetMore) {
  const std::vector<double> densities = {3, 40, 99.9, 100.5, 900};
  const std::vector<int64_t> budgets = {400, 400, 400, 200, 200};
  Harness h(testing::Make(D2o()), {.n_layers = 5, .budget = 200});
  h.Prefill(1000, [&](const Cell& cell) {
    if (cell.query != 999 || cell.rank != 0) return 0.0;
    return std::sqrt(densities[static_cast<size_t>(cell.layer)] * 1000);
  });
  for (int layer = 0; layer < 5; ++layer) {
    EXPECT_EQ(h.cache().n_slots(layer, 0), budgets[static_cast<size_t>(layer)]) << layer;
  }
}

// The same gate with the same entries in all: three dense layers of 250 and two of 125.
TEST(D2oTest, DenseLayersTakeFromTheOthers) {
  const std::vector<double> densities = {3, 40, 99.9, 100.5, 900};
  const auto slots = [&](int64_t n, int64_t budget, const std::string& spec) {
    Harness h(testing::Make(D2o(), spec), {.n_layers = 5, .budget = budget});
    h.Prefill(n, [&](const Cell& cell) {
      if (cell.query != n - 1 || cell.rank != 0) return 0.0;
      return std::sqrt(densities[static_cast<size_t>(cell.layer)] * static_cast<double>(n));
    });
    std::vector<int64_t> found;
    found.reserve(5);
    for (int layer = 0; layer < 5; ++layer) found.push_back(h.cache().n_slots(layer, 0));
    return found;
  };
  using Slots = std::vector<int64_t>;
  EXPECT_EQ(slots(1000, 200, "total=true"), (Slots{250, 250, 250, 125, 125}));
  EXPECT_EQ(slots(1000, 200, "total=true,gate=1000"), (Slots{200, 200, 200, 200, 200}));
  // Dense layers hold the whole prompt; what is left of 5 * 200 is the others'.
  EXPECT_EQ(slots(220, 200, "total=true"), (Slots{220, 220, 220, 170, 170}));
  EXPECT_EQ(slots(150, 200, "total=true"), (Slots{150, 150, 150, 150, 150}));
  // 2000 tokens: a variance of 100.5 counts as 50.25.
  EXPECT_EQ(slots(2000, 200, "gate_scale=length"), (Slots{400, 400, 400, 400, 200}));
  EXPECT_EQ(slots(500, 200, "gate_scale=length"), (Slots{400, 400, 200, 200, 200}));
}

TEST(D2oTest, OptionsOfTheGateNeedIt) {
  for (const char* spec :
       {"total=true,layer_policy=softmax", "gate_scale=length,layer_policy=uniform"}) {
    const auto made = compression::MakeMethod(std::string("d2o:") + spec);
    ASSERT_FALSE(made.has_value()) << spec;
    EXPECT_NE(made.error().message.find("layer_policy=gate"), std::string::npos);
  }
  EXPECT_EQ((*compression::MakeMethod("d2o:total=true"))->traits().budget.min, 12);
}

// The worked example of the density: 1.666667 for the two heads, 2 for the first alone. A layer
// at the gate is dense.
TEST(D2oTest, DensityIsTheMeanVarianceOfTheHeads) {
  const std::vector<std::vector<double>> sums = {{4, 2, 1, 1}, {3, 3, 1, 1}};
  const auto slots = [&](int n_heads, const std::string& gate) {
    Harness h(testing::Make(D2o(), "sinks=0,alpha=1.5,gate=" + gate),
              {.n_q_heads = n_heads, .budget = 2});
    h.Prefill(4, [&](const Cell& cell) {
      return cell.query == 3
                 ? sums[static_cast<size_t>(cell.q_head)][static_cast<size_t>(cell.rank)]
                 : 0;
    });
    return h.cache().n_slots(0, 0);
  };
  EXPECT_EQ(slots(1, "2"), 3);
  EXPECT_EQ(slots(1, "1.999"), 2);
  EXPECT_EQ(slots(2, "1.6667"), 3);
  EXPECT_EQ(slots(2, "1.6666"), 2);
}

// The worked example of the softmax policy. u is .1 for each query head whose variance is the
// layer's largest, if the others have none.
TEST(D2oTest, SoftmaxSharesAmongLayers) {
  const std::vector<int> n_uneven = {1, 2, 5, 3};
  const std::vector<int64_t> budgets = {94, 85, 63, 77};  // of 400, ratio .2
  for (size_t which = 0; which < 4; ++which) {
    // Of four layers only the third is not exempt.
    Harness h(testing::Make(D2o(), "layer_policy=softmax"),
              {.n_layers = 4, .n_q_heads = 10, .budget = 80});
    h.Prefill(400, [&](const Cell& cell) {
      size_t at = static_cast<size_t>(cell.layer);
      if (at == 2) {
        at = which;
      } else if (at == which) {
        at = 2;
      }
      const bool uneven = cell.q_head < n_uneven[at];
      return uneven && cell.query == 399 && cell.rank == 0 ? 1000.0 : 0;
    });
    EXPECT_EQ(h.cache().n_slots(2, 0), budgets[which]) << which;
    for (const int layer : {0, 1, 3}) EXPECT_EQ(h.cache().n_slots(layer, 0), 400) << layer;
    EXPECT_TRUE(h.method().traits().decisions.WaitsForAllLayers());
    EXPECT_LE(h.cache().n_slots(2, 0) + 1200, h.method().TotalSlots(80, 400, 4));
  }
}

TEST(D2oTest, APromptThatFitsIsLeftAlone) {
  Harness h(testing::Make(D2o()), {.budget = 20});
  h.Prefill(20, testing::ByPosition(std::vector<double>(64, 0.5)));
  EXPECT_TRUE(h.plans().empty());
  h.Decode(testing::ByPosition(std::vector<double>(64, 0.5)));
  EXPECT_EQ(h.cache().n_slots(0, 0), 20);
}

// Also in a layer that the softmax gives less than its share, and from then on it has the budget.
TEST(D2oTest, TheSoftmaxLeavesAPromptThatFitsAlone) {
  Harness h(testing::Make(D2o(), "layer_policy=softmax"),
            {.n_layers = 4, .n_q_heads = 2, .budget = 40});
  const Weights weights = [](const Cell& cell) {
    return cell.layer == 2 && cell.q_head == 0 && cell.rank == 0 ? 1000.0 : 0.5;
  };
  h.Prefill(40, weights);
  for (int layer = 0; layer < 4; ++layer) EXPECT_EQ(h.cache().n_slots(layer, 0), 40) << layer;
  for (int step = 0; step < 3; ++step) h.Decode(weights);
  EXPECT_EQ(h.cache().n_slots(2, 0), 40);
}

// What a layer's densities are made of does not tell its largest weights.
TEST(D2oTest, TheLargestWeightOfAGroupOnlyWithoutDensities) {
  const auto spec = ParseSpec("d2o:reduce=max");
  EXPECT_EQ(D2o().make(*spec).error().message, "d2o: reduce=max: expected layer_policy=uniform");
  EXPECT_TRUE(D2o().make(*ParseSpec("d2o:reduce=max,layer_policy=uniform")).has_value());
  EXPECT_TRUE(D2o().make(*ParseSpec("d2o:reduce=sum")).has_value());
}

TEST(D2oTest, KeepsWhatH2oKeeps) {
  const Weights weights = [](const Cell& cell) {
    return testing::Random({cell.q_head, cell.query, cell.position});
  };
  Harness d2o(testing::Make(D2o(), "layer_policy=uniform"), {.n_q_heads = 2, .budget = 24});
  Harness h2o(testing::Make(H2o(), "sinks=4,recent=5"), {.n_q_heads = 2, .budget = 24});
  for (Harness* h : {&d2o, &h2o}) h->Prefill(50, weights);
  EXPECT_EQ(d2o.Kept(), h2o.Kept());
  for (int step = 0; step < 100; ++step) {
    for (Harness* h : {&d2o, &h2o}) h->Decode(weights);
    ASSERT_EQ(d2o.Kept(), h2o.Kept()) << step;
  }
}

// --- a second implementation: plain loops over lists of entries ---

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

struct PlainHead {
  std::vector<PlainEntry> entries;
  bool has_tau = false;
  double tau = 0;

  // Evicts `n` entries at once or one, and merges them.
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
        plain_(kLayers, std::vector<PlainHead>(kHeads)),
        budgets_(kLayers, kBudget) {
    harness_.SetKeys([](int layer, int head, Position t) { return Vector(layer, head, t, 0); });
    harness_.SetValues([](int layer, int head, Position t) { return Vector(layer, head, t, 1); });
  }

  static std::vector<float> Vector(int layer, int head, Position t, int which) {
    return testing::RandomVector({layer, head, t, which}, kDim);
  }
  // The second layer has a sink.
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
      PlainHead& plain = plain_[layer][head];
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
    for (PlainHead& plain : plain_[layer]) {
      while (static_cast<int64_t>(plain.entries.size()) > budgets_[layer]) {
        const auto excess =
            static_cast<int>(plain.entries.size()) - static_cast<int>(budgets_[layer]);
        plain.Evict(budgets_[layer], n_before == 0 ? excess : 1);
      }
    }
  }

  void Compare(int layer, int head) {
    const PlainHead& plain = plain_[layer][head];
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
  std::vector<std::vector<PlainHead>> plain_;  // [layer][kv_head]
  std::vector<int64_t> budgets_;               // [layer]
  int64_t longest_ = 0;
};

TEST_F(D2oRandomTest, PromptAndStepsAgreeWithPlainLoops) {
  Run(Phase::kPrefill, 70);
  EXPECT_EQ(budgets_, (std::vector<int64_t>{40, 20})) << "the test means to have both";
  for (int step = 0; step < 250 && !HasFatalFailure(); ++step) Run(Phase::kDecode, 1);
}

// What overflows after a chunk that fitted goes one by one too: the first sets the threshold.
TEST_F(D2oRandomTest, AChunkThatFitsBeforeOneThatDoesNot) {
  Run(Phase::kPrefill, 16);
  for (int chunk = 0; chunk < 4 && !HasFatalFailure(); ++chunk) Run(Phase::kPrefill, 16);
}

// Later chunks are steps without new tokens in between: each merge sees those before.
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
