#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <vector>

#include "compression/registry.h"
#include "compression/testing/harness.h"
#include "compression/testing/random.h"

// Budgets of a few entries (methods.md 0.7): windows and blocks shrink; what is refused could hold
// nothing but what is protected.
namespace winnow::compression {
namespace {

TEST(SmallBudgetsTest, TheLeastIsOneMoreThanIsProtected) {
  std::map<std::string, int64_t> min;
  for (const MethodEntry& entry : Methods()) {
    const auto method = MakeMethod(entry.name);
    ASSERT_TRUE(method.has_value());
    if ((*method)->traits().needs_budget) {
      min[std::string(entry.name)] = (*method)->traits().min_budget;
    }
  }
  EXPECT_EQ(min, (std::map<std::string, int64_t>{
                     {"adakv", 1},  // the window shrinks to one entry
                     {"attention-matching", 1},
                     {"cake", 1},                // the same
                     {"caote", 1},               // as snapkv
                     {"cam", 1},                 // no more sinks than there is room for
                     {"compactor", 13},          // 8 sinks, 4 recent entries
                     {"criticalkv", 1},          // as snapkv
                     {"custom", 1},              // as snapkv
                     {"d2o", 6},                 // 4 sinks, a recent and an important entry
                     {"defensivekv", 1},         // as snapkv
                     {"ems", 33},                // a window of 32
                     {"expected-attention", 5},  // 4 sinks
                     {"h2o", 1},                 //
                     {"hbw", 1},                 // as snapkv
                     {"keydiff", 1},             //
                     {"knorm", 1},               //
                     {"kvzip", 5},               // 4 sinks
                     {"lagkv", 5},               // 4 sinks
                     {"lm-infinite", 1},         // as cam
                     {"local", 1},               //
                     {"pyramidkv", 1},           // as snapkv
                     {"random", 21},             // 4 sinks, 16 recent entries
                     {"rkv", 1},                 // as snapkv
                     {"roco", 15},               // 4 sinks of a prompt, 10 recent entries
                     {"scissorhands", 11},       // 10 recent entries
                     {"snapkv", 1},              //
                     {"streaming", 1},           // as cam
                     {"tova", 1},                //
                     {"triattention", 1},
                     {"winnow", 2},  // an entry and a rest row
                     {"treekv", 5},  // 4 sinks while generating
                 }));
}

TEST(SmallBudgetsTest, EveryMethodHoldsEveryBudgetItTakes) {
  constexpr int kLayers = 3, kHeads = 2;
  for (const MethodEntry& entry : Methods()) {
    const MethodPtr method = *MakeMethod(entry.name);
    const Traits& traits = method->traits();
    if (!traits.needs_budget) continue;
    for (int64_t budget = traits.min_budget; budget <= 64; ++budget) {
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
        n_grown += traits.evicts_in_decode ? 0 : 1;
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
