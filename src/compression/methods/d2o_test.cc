#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
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

// Budgets of 24 and 100 split into 4 sinks, important entries and recent entries.
TEST(D2oTest, SplitsABudgetThreeToOne) {
  struct Case {
    int64_t budget, n_important, n_recent;
  };
  for (const Case& c : {Case{24, 15, 5}, Case{100, 72, 24}}) {
    const int64_t n = c.budget + 20;
    // By score sinks and the newest entries would go first, and the best of the rest are the
    // oldest.
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

// F = a^2 / n if one column has all the attention, a.
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

// total=true: the same gate with the same total: three dense layers of 250 and two of 125.
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
  // Dense layers hold the whole prompt; the others share the rest of 5 * 200.
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

// The mean variance is 1.666667 for both heads and 2 for the first alone. A layer exactly at the
// gate is dense.
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

// u is .1 for each of the ten query heads that has the layer's largest variance, if the others have
// none.
TEST(D2oTest, SoftmaxSharesAmongLayers) {
  const std::vector<int> n_uneven = {1, 2, 5, 3};
  const std::vector<int64_t> budgets = {94, 85, 63, 77};  // of 400, ratio .2
  for (size_t which = 0; which < 4; ++which) {
    // Of the four layers only layer 2 is not exempt.
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

// A layer whose softmax ratio is small keeps such a prompt too, and holds the whole budget from
// then on.
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

// Densities need the column sums of single query heads; the group's largest weights do not follow
// from these.
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

}  // namespace
}  // namespace winnow::compression::methods
