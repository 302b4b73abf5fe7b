#include "runtime/budget/memory_plan.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "compression/registry.h"

// Peaks computed by hand: 4 layers, 1 KV head, rows of 10 bytes and no other cost, unless stated.
namespace winnow::runtime {
namespace {

using compression::MakeMethod;
using compression::MethodPtr;

constexpr CacheCost kRowCost = {.n_layers = 4, .n_kv_heads = 1, .row_bytes = 10};

MethodPtr Make(const std::string& spec, const std::string& decode = "") {
  MethodPtr method = MakeMethod(spec).value();
  if (decode.empty()) return method;
  return compression::WithDecode(method, MakeMethod(decode).value()).value();
}

MemoryPlan Begin(const compression::Method* method,
                 const std::vector<int64_t>& slots = {0, 0, 0, 0},
                 const CacheCost& cost = kRowCost) {
  MemoryPlan plan(cost, method);
  std::vector<Entries> held;
  int64_t max = 0;
  for (const int64_t n : slots) {
    held.push_back({.slots = n, .rows = n});
    max = std::max(max, n);
  }
  plan.Start(held, max, max);
  return plan;
}

TEST(MemoryPlan, TheFullCacheHoldsEverything) {
  MemoryPlan plan = Begin(nullptr);
  EXPECT_EQ(plan.Prompt(0, 50, 50), 50 * 40);
  EXPECT_EQ(plan.bytes(), 50 * 40);
  EXPECT_EQ(plan.Decode(0, 7), 57 * 40);
  EXPECT_EQ(plan.bytes(), 57 * 40);
}

TEST(MemoryPlan, APromptNeedsOneLayerInFull) {
  const MethodPtr method = Make("snapkv:window=4");
  MemoryPlan plan = Begin(method.get());
  EXPECT_EQ(plan.Prompt(16, 50, 50), (3 * 16 + 50) * 10);
  EXPECT_EQ(plan.bytes(), 4 * 16 * 10);
  EXPECT_EQ(plan.Decode(16, 5), 4 * 21 * 10);  // the cache grows while generating
}

// All layers are full until the last one is done, and one of them also holds the replay.
TEST(MemoryPlan, AReplayLivesInOneLayer) {
  const MethodPtr method = Make("winnow:rest=0");
  const compression::ReplaySpec replay = method->needs().replay;
  // "\n\nRepeat the part of the previous context exactly, starting with": 64 bytes, 9 of them
  // spaces of three bytes, and another one before it.
  const int64_t n_text = 64 + 2 * 9 + 3;
  EXPECT_EQ(static_cast<int64_t>(replay.next_text.size()), 64);
  EXPECT_EQ(replay.MaxTokens(50), 50 + n_text + 8);
  EXPECT_EQ(replay.MaxTokens(5000), 512 + n_text + 8);
  MemoryPlan plan = Begin(method.get());
  EXPECT_EQ(plan.Prompt(16, 50, 50), (4 * 50 + 50 + n_text + 8) * 10);
  EXPECT_EQ(plan.bytes(), 4 * 16 * 10);
}

// Without a replay, and with sizes known before the prompt is read, a layer need not wait for the
// others: it is full beside what all layers together keep, however they divide it.
TEST(MemoryPlan, KnownSizesWaitForNoLayer) {
  for (const char* allocation : {"uniform", "profile"}) {
    const MethodPtr method =
        Make("winnow:rest=0,queries=window,allocation=" + std::string(allocation));
    MemoryPlan plan = Begin(method.get());
    EXPECT_EQ(plan.Prompt(16, 50, 50), (4 * 16 + 50) * 10);
    EXPECT_EQ(plan.bytes(), 4 * 16 * 10);
  }
  const MethodPtr measured = Make("winnow:rest=0,queries=window");
  EXPECT_EQ(Begin(measured.get()).Prompt(16, 50, 50), 4 * 50 * 10);
}

TEST(MemoryPlan, StateAndHeadsCount) {
  const MethodPtr method = Make("streaming");
  const CacheCost cost = {
      .n_layers = 2, .n_kv_heads = 3, .row_bytes = 10, .slot_bytes = 8, .fixed_bytes = 100};
  MemoryPlan plan = Begin(method.get(), {0, 0}, cost);
  EXPECT_EQ(plan.Prompt(16, 50, 50), 100 + (16 + 50) * 3 * 18);
}

// Layers that the call has not reached yet hold their old contents, which a plan with one budget
// for all layers would miss.
TEST(MemoryPlan, LaterPromptsFindTheOldContents) {
  const MethodPtr method = Make("tova");
  const std::vector<int64_t> held = {100, 100, 100, 100};
  // If the budget shrinks to 20, the peak is in the first layer.
  EXPECT_EQ(Begin(method.get(), held).Prompt(20, 60, 60), (160 + 3 * 100) * 10);
  // If it grows to 150, the peak is in the last layer.
  EXPECT_EQ(Begin(method.get(), held).Prompt(150, 60, 60), (3 * 150 + 160) * 10);
  // In parts of 10, each part finds what the one before left.
  EXPECT_EQ(Begin(method.get(), held).Prompt(20, 60, 10), (110 + 3 * 100) * 10);
  MemoryPlan plan = Begin(method.get(), held);
  plan.Prompt(20, 1, 1);
  EXPECT_EQ(plan.bytes(), 4 * 20 * 10);
  EXPECT_EQ(plan.Prompt(20, 59, 59), (3 * 20 + 79) * 10);
}

TEST(MemoryPlan, GeneratingUnderABudget) {
  const MethodPtr method = Make("h2o");
  const CacheCost cost = kRowCost;
  MemoryPlan plan = Begin(method.get(), {10, 10, 10, 10}, cost);
  EXPECT_EQ(plan.Decode(16, 1), 11 * 40);
  EXPECT_EQ(plan.Decode(16, 3), 14 * 40);
  EXPECT_EQ(plan.Decode(16, 1000), (4 * 16 + 1) * 10);
  EXPECT_EQ(plan.bytes(), 4 * 16 * 10);
}

// The prompt is kept in full until the first generated token; from then on the budget holds, and a
// short prompt grows to it.
TEST(MemoryPlan, OnlyTheDecodeMethodEvicts) {
  for (const char* prefill : {"full", "twilight"}) {
    const MethodPtr method = Make(prefill, "keydiff");
    MemoryPlan plan = Begin(method.get());
    EXPECT_EQ(plan.Prompt(16, 37, 37), 37 * 40);
    EXPECT_EQ(plan.Decode(16, 400), (37 + 1 + 3 * 37) * 10);
    EXPECT_EQ(plan.bytes(), 16 * 40);
    plan = Begin(method.get());
    EXPECT_EQ(plan.Prompt(900, 37, 37), 37 * 40);
    EXPECT_EQ(plan.Decode(900, 400), 437 * 40);
  }
}

TEST(MemoryPlan, LayersOfDifferentSizes) {
  const MethodPtr method = Make("pyramidkv:window=4,kernel=3,beta=20");
  // A mean of 36 entries besides the window, on a straight line: 71 in the first layer, 1 in the
  // last.
  const std::vector<int64_t> sizes = {4 + 71, 4 + 47, 4 + 25, 4 + 1};
  for (int layer = 0; layer < 4; ++layer) {
    EXPECT_EQ(method->LayerSlots(layer, 4, 40, 500), sizes[static_cast<size_t>(layer)]);
  }
  MemoryPlan plan = Begin(method.get());
  EXPECT_EQ(plan.Prompt(40, 500, 500), (75 + 51 + 29 + 500) * 10);
  EXPECT_EQ(plan.bytes(), (75 + 51 + 29 + 5) * 10);
  // The next prompt's peak is in the first layer, as all others are below what they may hold.
  EXPECT_EQ(plan.Prompt(40, 100, 100), (75 + 51 + 29 + 5 + 100) * 10);
}

// CAKE: the first layers hold more than their share until the later ones are known, but together
// never more than all layers may.
TEST(MemoryPlan, LayersThatShareABudget) {
  const MethodPtr method = Make("cake:window=4");
  MemoryPlan plan = Begin(method.get());
  EXPECT_EQ(plan.Prompt(20, 50, 50), (80 + 50) * 10);
  EXPECT_EQ(plan.bytes(), 80 * 10);
}

TEST(MemoryPlan, ThoseThatWaitHoldEverything) {
  const MethodPtr method = Make("d2o:layer_policy=softmax");
  MemoryPlan plan = Begin(method.get(), {30, 30, 30, 30});
  EXPECT_EQ(plan.Prompt(20, 50, 50), 80 * 40);
}

TEST(MemoryPlan, RowsAndSlotsDiffer) {
  const MethodPtr method = Make("ems:window=4,gamma=4");
  const CacheCost cost = {.n_layers = 4, .n_kv_heads = 1, .row_bytes = 10, .slot_bytes = 1};
  MemoryPlan plan = Begin(method.get(), {0, 0, 0, 0}, cost);
  EXPECT_EQ(plan.Prompt(20, 200, 200), (3 * 20 + 200) * 10 + (3 * 80 + 200) * 1);
  EXPECT_EQ(plan.bytes(), 4 * 20 * 10 + 4 * 80);
}

TEST(MemoryPlan, WhatIsHeldKeepsToWhatTheMethodStates) {
  using compression::Phase;
  const struct {
    const char* method;
    Phase phase;
    std::vector<int64_t> held;
    int64_t n_more;
    bool keeps;
  } cases[] = {
      {"h2o", Phase::kPrefill, {16, 16, 16, 16}, 0, true},
      {"h2o", Phase::kPrefill, {16, 16, 17, 16}, 0, false},
      {"h2o", Phase::kPrefill, {17, 17, 17, 17}, 1, true},
      {"h2o", Phase::kDecode, {16, 16, 16, 16}, 0, true},
      {"h2o", Phase::kDecode, {16, 16, 16, 17}, 0, false},
      // Layers that share a budget: each alone may hold more than its part, but not all together.
      {"cake:window=4", Phase::kPrefill, {40, 16, 5, 3}, 0, true},
      {"cake:window=4", Phase::kPrefill, {40, 17, 5, 3}, 0, false},
  };
  for (const auto& one : cases) {
    SCOPED_TRACE(std::string(one.method) + ", " + std::to_string(one.held[2]));
    const MethodPtr method = Make(one.method);
    MemoryPlan plan(kRowCost, method.get());
    std::vector<Entries> held;
    for (const int64_t n : one.held) held.push_back({.slots = n, .rows = n});
    plan.Start(held, /*n_seen=*/100, /*n_prompt=*/90);
    EXPECT_EQ(plan.KeepsSizes(one.phase, /*budget=*/16, one.n_more), one.keeps);
  }
}

TEST(MemoryPlan, WithoutEndThereIsNoOverflow) {
  MemoryPlan plan = Begin(nullptr);
  EXPECT_EQ(plan.Decode(0, int64_t{1} << 62), std::numeric_limits<int64_t>::max());
}

// Sizes that every method states: they do not fall as the text grows, layers fit into the total,
// and a budget that is a bound limits it.
TEST(MemoryPlan, MethodsStateSizesThatFitTogether) {
  for (const compression::MethodEntry& entry : compression::Methods()) {
    const MethodPtr method = MakeMethod(entry.name).value();
    const int64_t min = method->traits().budget.min;
    for (const int64_t budget : {min, min + 1, min + 7, 2 * min + 40, 10 * min}) {
      for (const int n_layers : {1, 2, 3, 8, 33}) {
        int64_t total = 0;
        for (const int64_t n :
             {int64_t{1}, budget - 1, budget, budget + 1, 2 * budget, 100 * budget}) {
          if (n < 1) continue;
          SCOPED_TRACE(std::string(entry.name) + ", budget " + std::to_string(budget) + ", " +
                       std::to_string(n_layers) + " layers, " + std::to_string(n) + " tokens");
          int64_t sum = 0;
          for (int layer = 0; layer < n_layers; ++layer) {
            const int64_t slots = method->LayerSlots(layer, n_layers, budget, n);
            EXPECT_LE(method->LayerRows(layer, n_layers, budget, n), slots);
            EXPECT_LE(slots, n);
            sum += slots;
          }
          EXPECT_LE(method->TotalSlots(budget, n, n_layers), sum);
          if (method->traits().decisions.evicts_in_decode) {
            const auto sizes = method->DecodeSizes(budget, n, n, n_layers);
            EXPECT_GE(sizes.total_slots, total);
            EXPECT_GE(sizes.total_slots, sizes.total_rows);
            EXPECT_LE(sizes.total_slots, sizes.layer_slots * n_layers);
            total = sizes.total_slots;
          }
          if (!method->traits().budget.held) continue;
          EXPECT_LE(method->TotalRows(budget, n, n_layers), budget * n_layers);
        }
      }
    }
  }
}

}  // namespace
}  // namespace winnow::runtime
