#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "compression/registry.h"
#include "compression/testing/harness.h"
#include "compression/testing/random.h"

// Budgets of a few entries (docs/methods/semantics.md#small-budgets): windows and blocks shrink; a
// budget is refused only if it has no room besides the protected entries.
namespace winnow::compression {
namespace {

// A method accepts every budget that leaves room besides what it protects.
TEST(SmallBudgetsTest, WhatIsProtectedFits) {
  for (const MethodEntry& entry : Methods()) {
    const MethodPtr method = MakeMethod(entry.name).value();
    const Traits& traits = method->traits();
    if (!traits.budget.needed) continue;
    for (int64_t budget = traits.budget.min; budget <= 80; ++budget) {
      const Promise promise = MethodPromise(entry.name, budget).value();
      EXPECT_LE(promise.sinks + promise.recent, budget) << entry.name;
    }
  }
}

TEST(SmallBudgetsTest, EveryMethodHoldsEveryBudgetItTakes) {
  constexpr int kLayers = 3, kHeads = 2;
  for (const MethodEntry& entry : Methods()) {
    const MethodPtr method = *MakeMethod(entry.name);
    const Traits& traits = method->traits();
    if (!traits.budget.needed) continue;
    for (int64_t budget = traits.budget.min; budget <= 64; ++budget) {
      SCOPED_TRACE(std::string(entry.name) + " with " + std::to_string(budget));
      testing::Harness h(
          method, {.n_layers = kLayers, .n_q_heads = 4, .n_kv_heads = kHeads, .budget = budget});
      const auto vectors = [](int layer, int head, Position position) {
        return testing::RandomVector({layer, head, position}, 2);
      };
      h.SetKeys(vectors);
      h.SetValues(vectors);
      int64_t n_grown = 0;
      const auto check = [&] {
        int64_t n_kept = 0;
        for (int layer = 0; layer < kLayers; ++layer) {
          for (int head = 0; head < kHeads; ++head) {
            const std::vector<Position> kept = h.Kept(layer, head);
            ASSERT_FALSE(kept.empty());
            n_kept += static_cast<int64_t>(kept.size());
          }
        }
        ASSERT_LE(n_kept,
                  kHeads * (method->TotalSlots(budget, h.n_seen(), kLayers) + kLayers * n_grown));
      };
      h.Prefill(90, testing::RandomWeights(3));
      check();
      for (uint64_t i = 0; i < 3; ++i) {
        h.Decode(testing::RandomWeights(10 + i));
        n_grown += traits.decisions.evicts_in_decode ? 0 : 1;
        check();
      }
      h.Prefill(17, testing::RandomWeights(20));
      n_grown = 0;
      check();
    }
  }
}

}  // namespace
}  // namespace winnow::compression
