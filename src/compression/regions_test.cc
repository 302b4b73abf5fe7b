#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "compression/parts.h"
#include "compression/registry.h"
#include "compression/testing/every_method.h"
#include "compression/testing/harness.h"
#include "compression/testing/random.h"

namespace winnow::compression {
namespace {

TEST(RegionsTest, AShareIsThatOfSinksAndRecentEntries) {
  // TreeKV's streaming experiments: 4 + 508 of 1024.
  const Regions half = {.sinks = 4, .recent = CountOrShare::Share(0.5)};
  EXPECT_EQ(half.Under(1024).sinks, 4);
  EXPECT_EQ(half.Under(1024).recent, 508);
  EXPECT_EQ(half.Under(9).recent, 0);
  EXPECT_EQ(half.Under(5).recent, 0);
  EXPECT_EQ(half.MinBudget(), 5);
  const Regions count = {.sinks = 4, .recent = 508};
  EXPECT_EQ(count.Under(1024).recent, 508);
  EXPECT_EQ(count.Under(600).recent, 508);
  EXPECT_EQ(count.MinBudget(), 513);
}

void UseRandomVectors(testing::Harness& h) {
  const auto vectors = [](int which) {
    return [which](int layer, int head, Position position) {
      return testing::RandomVector({layer, head, position, which}, 2);
    };
  };
  h.SetKeys(vectors(0));
  h.SetValues(vectors(1));
}

// Every step method that selects by a score runs with the regions of TreeKV's experiments.
class StepMethods : public ::testing::TestWithParam<std::string> {};

TEST_P(StepMethods, KeepTheRegions) {
  for (const std::string recent : {"0.5", "16"}) {
    const auto method = MakeMethod(GetParam() + "sinks=4,recent=" + recent);
    ASSERT_TRUE(method.has_value()) << method.error().message;
    testing::Harness h(*method, {.n_q_heads = 2, .n_kv_heads = 2, .budget = 40});
    UseRandomVectors(h);
    h.Prefill(30, testing::RandomWeights(1));
    for (uint64_t i = 0; i < 100; ++i) {
      if (i % 25 == 24) {
        h.Prefill(20, testing::RandomWeights(1000 + i));
      } else {
        h.Decode(testing::RandomWeights(100 + i));
      }
      for (int head = 0; head < 2; ++head) {
        const std::vector<Position> kept = h.Kept(0, head);
        ASSERT_LE(h.cache().n_rows(0, head), 40);
        ASSERT_GE(kept.size(), 20u);
        for (int64_t rank = 0; rank < 4; ++rank) {
          ASSERT_EQ(kept[static_cast<size_t>(rank)], rank);
        }
        for (int64_t back = 1; back <= 16; ++back) {
          ASSERT_EQ(kept[kept.size() - static_cast<size_t>(back)], h.n_seen() - back);
        }
      }
    }
  }
}

// A method may promise more recent entries than asked for (a window), and fewer of a count that is
// a weight beside others (d2o's `important`).
TEST_P(StepMethods, KeepTheRegionsOfEveryBudgetTheyTake) {
  for (const std::string recent : {"0.5", "0.9", "3"}) {
    const std::string spec = GetParam() + "sinks=4,recent=" + recent;
    const MethodPtr method = *MakeMethod(spec);
    for (int64_t budget = method->traits().budget.min; budget <= 64; ++budget) {
      SCOPED_TRACE(spec + " with " + std::to_string(budget));
      const Promise promise = *MethodPromise(spec, budget);
      ASSERT_EQ(promise.sinks, 4);
      const int64_t n_recent = recent == "3"     ? (budget >= 16 ? 3 : 1)
                               : recent == "0.5" ? std::max<int64_t>(0, budget / 2 - 4)
                                                 : std::max<int64_t>(0, budget * 9 / 10 - 4);
      ASSERT_GE(promise.recent, n_recent);
      testing::Harness h(method, {.budget = budget});
      UseRandomVectors(h);
      h.Prefill(90, testing::RandomWeights(3));
      for (uint64_t i = 0; i < 8; ++i) {
        const std::vector<Position> kept = h.Kept();
        ASSERT_LE(h.cache().n_rows(0, 0), budget);
        ASSERT_EQ(kept[3], 3);
        ASSERT_GE(std::ssize(kept), 4 + promise.recent);
        for (int64_t back = 1; back <= promise.recent; ++back) {
          ASSERT_EQ(kept[kept.size() - static_cast<size_t>(back)], h.n_seen() - back);
        }
        h.Decode(testing::RandomWeights(10 + i));
      }
    }
  }
}

// If the budget is too small for the window, the window is half of what the sinks leave.
TEST(RegionsTest, WindowsShrinkToWhatTheSinksLeave) {
  EXPECT_EQ(MethodPromise("ems:sinks=4", 20).value().recent, 8);
  EXPECT_EQ(MethodPromise("ems:sinks=4", 37).value().recent, 32);
  EXPECT_EQ(MethodPromise("rkv:sinks=4", 12).value().recent, 4);
  EXPECT_EQ(MethodPromise("rkv:sinks=4", 13).value().recent, 8);
}

// Methods and variants that hold their budget in decode and promise both regions, also after a
// prompt; up to where "sinks=4,recent=..." goes on.
std::vector<std::string> StepSpecs() {
  std::vector<std::string> specs;
  for (std::string& spec : testing::MethodsAndVariants()) {
    spec += spec.find(':') == std::string::npos ? ":" : ",";
    const std::string with_regions = spec + "sinks=4,recent=0.5";
    const auto method = MakeMethod(with_regions);
    if (!method || !(*method)->traits().budget.held) continue;
    if (!(*method)->traits().decisions.evicts_in_decode) continue;
    const Promise promise = *MethodPromise(with_regions, 40);
    if (promise.sinks == 4 && promise.recent == 16) specs.push_back(spec);
  }
  return specs;
}

INSTANTIATE_TEST_SUITE_P(Methods, StepMethods, ::testing::ValuesIn(StepSpecs()));

// No method with parameters for both regions is left out, unless it evicts in the prompt only or
// finds its own size.
TEST(RegionsTest, EveryStepMethodKeepsThem) {
  const std::vector<std::string> specs = StepSpecs();
  for (const MethodEntry& entry : Methods()) {
    const std::vector<Parameter> parameters = entry.parameters();
    const auto has = [&](std::string_view name) {
      return std::ranges::find(parameters, name, &Parameter::name) != parameters.end();
    };
    if (!has("sinks") || !has("recent") || entry.name == "custom") continue;
    const MethodPtr method = *MakeMethod(entry.name);
    const Traits& traits = method->traits();
    if (!traits.decisions.evicts_in_decode || !traits.budget.needed) continue;
    EXPECT_TRUE(std::ranges::any_of(specs, [&](const std::string& spec) {
      return spec.starts_with(std::string(entry.name) + ":");
    })) << entry.name;
  }
}

// Methods that select by age keep the sinks; the rest of the budget holds recent entries.
TEST(RegionsTest, NothingButRegions) {
  int n_methods = 0;
  for (const MethodEntry& entry : Methods()) {
    const std::string name = std::string(entry.name) + ":sinks=4";
    const auto method = MakeMethod(name);
    if (!method || !(*method)->traits().decisions.evicts_in_decode) continue;
    const Promise promise = *MethodPromise(name, 40);
    if (!promise.exact || promise.sinks + promise.recent != 40) continue;
    ++n_methods;
    testing::Harness h(*method, {.budget = 40});
    h.Prefill(60, testing::RandomWeights(1));
    for (uint64_t i = 0; i < 10; ++i) {
      const std::vector<Position> kept = h.Kept();
      ASSERT_EQ(kept.size(), 40u) << name;
      EXPECT_EQ(kept[3], 3) << name;
      EXPECT_EQ(kept[4], h.n_seen() - 36) << name;
      h.Decode(testing::RandomWeights(2 + i));
    }
  }
  EXPECT_GE(n_methods, 3);
}

// D2O accepts recent entries as a count or a share of the budget, as other methods do.
TEST(RegionsTest, D2oCountsAsOtherMethodsDo) {
  const testing::Weights weights = [](const testing::Cell& cell) {
    return testing::Random({cell.q_head, cell.query, cell.position});
  };
  for (const std::string recent : {"0.5", "0.25", "7", "0"}) {
    const std::string counted = recent.size() == 1 ? ",important=0" : "";
    testing::Harness d2o(*MakeMethod("d2o:layer_policy=uniform,recent=" + recent + counted),
                         {.n_q_heads = 2, .budget = 24});
    testing::Harness h2o(*MakeMethod("h2o:sinks=4,recent=" + recent),
                         {.n_q_heads = 2, .budget = 24});
    for (testing::Harness* h : {&d2o, &h2o}) h->Prefill(50, weights);
    ASSERT_EQ(d2o.Kept(), h2o.Kept()) << recent;
    for (int step = 0; step < 100; ++step) {
      for (testing::Harness* h : {&d2o, &h2o}) h->Decode(weights);
      ASSERT_EQ(d2o.Kept(), h2o.Kept()) << recent << ", step " << step;
    }
  }
  EXPECT_EQ((*MakeMethod("d2o:important=0,recent=16"))->traits().budget.min, 21);
  EXPECT_EQ((*MakeMethod("d2o:important=0"))->traits().budget.min, 6);
  EXPECT_EQ(MakeMethod("d2o:recent=0").error().message,
            "d2o: recent: found '0', expected 1 or more, or important=0");
}

// D2O moves budget between layers. Layers with less keep fewer recent entries: the promise covers
// them.
TEST(RegionsTest, D2oPromisesWhatTheSmallestLayerKeeps) {
  const std::string spec = "d2o:total=true";
  constexpr int64_t kBudget = 200;
  testing::Harness h(*MakeMethod(spec), {.n_layers = 5, .budget = kBudget});
  h.Prefill(1000, [&](const testing::Cell& cell) {
    if (cell.query != 999) return 0.0;
    if (cell.rank > 0) return 1e-3 * static_cast<double>(1000 - cell.rank);  // prefer older ones
    return cell.layer == 0 ? 1000.0 : 100.0;
  });
  const std::vector<Position> kept = h.Kept(0);
  const Promise promise = MethodPromise(spec, kBudget).value();
  ASSERT_LT(std::ssize(kept), kBudget);
  ASSERT_EQ(promise.recent, 24);  // a quarter of 100 - 4
  EXPECT_EQ(kept[kept.size() - static_cast<size_t>(promise.recent)], 1000 - promise.recent);
  // With the softmax policy a layer may keep only 4 + 2.
  EXPECT_EQ(MethodPromise("d2o:layer_policy=softmax", kBudget).value().sinks, 4);
  EXPECT_EQ(MethodPromise("d2o:layer_policy=softmax", kBudget).value().recent, 1);
}

}  // namespace
}  // namespace winnow::compression
