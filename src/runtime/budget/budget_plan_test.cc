#include "runtime/budget/budget_plan.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>
#include <vector>

#include "compression/registry.h"

// Budgets computed by hand: 4 layers, 1 KV head, rows of 10 bytes and no other cost.
namespace winnow::runtime {
namespace {

constexpr CacheCost kCost = {.n_layers = 4, .n_kv_heads = 1, .row_bytes = 10};

CompressionOptions With(const std::string& method, CompressionOptions options = {}) {
  if (!method.empty()) options.method = compression::MakeMethod(method).value();
  return options;
}

CacheFacts Facts(int64_t capacity = 1000) {
  return {.cost = kCost, .capacity = capacity, .list_bytes_per_slot = 2};
}

// The same number of entries in every layer.
CacheContents Holding(int64_t n) {
  return {.layers = std::vector<Entries>(4, {.slots = n, .rows = n}),
          .longest_head = n,
          .live_bytes = 40 * n};
}

void ExpectBudget(const Result<ResolvedBudget>& found, const ResolvedBudget& expected) {
  ASSERT_TRUE(found.has_value()) << found.error().message;
  EXPECT_EQ(found->budget, expected.budget);
  EXPECT_EQ(found->n_call, expected.n_call);
  EXPECT_EQ(found->n_next, expected.n_next);
}

TEST(BudgetPlan, OfSizesAndShares) {
  const struct {
    const char* method;
    CompressionOptions options;
    CompressionProgress progress;
    int64_t n_prompt;
    int64_t budget;
  } cases[] = {
      {"", {}, {}, 50, 0},
      {"snapkv", {.size = 16}, {}, 50, 16},
      {"snapkv", {.size = 16}, {.budget = 16, .n_seen = 70, .n_prompt = 50}, 50, 16},
      {"snapkv", {.ratio = 0.25}, {}, 103, 25},
      {"snapkv", {.ratio = 0.25}, {.budget = 25, .n_seen = 103, .n_prompt = 100}, 9, 28},
      {"refreekv", {}, {}, 50, 0},
  };
  for (const auto& one : cases) {
    SCOPED_TRACE(std::string(one.method) + ", " + std::to_string(one.budget));
    const CompressionOptions options = With(one.method, one.options);
    const BudgetPlan plan(options, Facts(), one.progress);
    ExpectBudget(plan.Prompt(Holding(0), one.n_prompt, /*n_call=*/2000),
                 {.budget = one.budget, .n_call = one.n_prompt});
  }
  const CompressionOptions options = With("random", {.ratio = 0.05});
  const auto refused = BudgetPlan(options, Facts(), {}).Prompt(Holding(0), 101, 101);
  ASSERT_FALSE(refused.has_value());
  EXPECT_NE(refused.error().message.find("needs at least 21"), std::string::npos)
      << refused.error().message;
}

// Of 400 rows, a first prompt of 100 tokens takes 100 in the current layer, generated tokens take
// 25 in every layer (a quarter of the rows), and a later prompt 100 in one layer (a quarter).
TEST(BudgetPlan, OfBytes) {
  const struct {
    const char* method;
    ResolvedBudget expected;
  } cases[] = {
      // 4 (B + 25) + 100 <= 400.
      {"snapkv:window=4", {.budget = 50, .n_call = 100, .n_next = 100}},
      // It does not grow: 4 B + 100 <= 400.
      {"h2o", {.budget = 75, .n_call = 100, .n_next = 100}},
      // All layers are full until the end, so no room is kept for a later prompt: 4 (B + 25) <=
      // 400.
      {"defensivekv:layer=true", {.budget = 75, .n_call = 100}},
  };
  for (const auto& one : cases) {
    SCOPED_TRACE(one.method);
    const CompressionOptions options = With(one.method, {.memory_bytes = 4000});
    const BudgetPlan plan(options, Facts(/*capacity=*/100), {});
    ExpectBudget(plan.Prompt(Holding(0), 100, 100), one.expected);
  }
}

// The error says how many of the bytes are not keys and values of the prompt.
TEST(BudgetPlan, ARefusalNamesWhatTheMethodKeeps) {
  const auto refusal = [](const char* method, int64_t slot_bytes) {
    CacheFacts facts = Facts();
    facts.cost.slot_bytes = slot_bytes;
    const CompressionOptions options = With(method, {.memory_bytes = 10});
    return BudgetPlan(options, facts, {}).Prompt(Holding(0), 100, 100).error().message;
  };
  const std::string entry = std::to_string(Facts().cost.row_bytes + 2);
  EXPECT_NE(refusal("winnow", 2).find("a prompt of 100 tokens and its replay need "),
            std::string::npos)
      << refusal("winnow", 2);
  EXPECT_TRUE(
      refusal("winnow", 2).ends_with("; winnow's state takes 2 of an entry's " + entry + " bytes"))
      << refusal("winnow", 2);
  EXPECT_EQ(refusal("snapkv", 0),
            "cache: a prompt of 100 tokens needs 1030 bytes at its peak, 10 are allowed; taken in "
            "smaller chunks (`prefill_chunk`) it needs less");
}

TEST(BudgetPlan, BytesOfTheFullCache) {
  const CompressionOptions options = With("", {.memory_bytes = 4000});
  const BudgetPlan plan(options, Facts(), {});
  EXPECT_TRUE(plan.Prompt(Holding(0), 100, 100).has_value());
  const auto refused = plan.Prompt(Holding(60), 41, 41);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().message, "cache: 41 more tokens need 4040 bytes, 4000 are allowed");
  EXPECT_EQ(refused.error().code, ErrorCode::kTooLarge);
}

// 300 rows are held: the prompt is read 100 tokens at a time, and the budget stays.
TEST(BudgetPlan, ALaterPromptIsTakenInParts) {
  const CompressionOptions options = With("h2o", {.memory_bytes = 4000});
  const BudgetPlan plan(options, Facts(),
                        {.budget = 75, .n_seen = 100, .n_prompt = 100, .n_next = 100});
  ExpectBudget(plan.Prompt(Holding(75), 200, 200), {.budget = 75, .n_call = 100, .n_next = 100});
  EXPECT_EQ(plan.PromptPeak(Holding(75), 200, {.budget = 75, .n_call = 100}), 4000);
}

TEST(BudgetPlan, TextsLongerThanTheCache) {
  const CompressionOptions options = With("streaming", {.size = 60, .prefill_chunk = 40});
  CacheFacts facts = Facts(/*capacity=*/100);
  EXPECT_FALSE(BudgetPlan(options, facts, {}).Streams()) << "positions of the text";
  const auto refused = BudgetPlan(options, facts, {}).Prompt(Holding(0), 101, 40);
  ASSERT_FALSE(refused.has_value());
  EXPECT_NE(refused.error().message.find("fills the context of 100 tokens"), std::string::npos);
  facts.positions = cache::PositionMode::kReassigned;
  EXPECT_TRUE(BudgetPlan(options, facts, {}).Streams());
  EXPECT_EQ(BudgetPlan(options, facts, {}).LargestStreamingBudget(), 60);
  EXPECT_TRUE(BudgetPlan(options, facts, {}).Prompt(Holding(0), 101, 40).has_value());
  // A budget or a call that is larger by one fills the cache.
  EXPECT_FALSE(BudgetPlan(options, facts, {.budget = 61}).Streams());
  const CompressionOptions longer = With("streaming", {.size = 60, .prefill_chunk = 41});
  EXPECT_FALSE(BudgetPlan(longer, facts, {}).Streams());
}

TEST(BudgetPlan, TokensThatStillFit) {
  constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
  const CompressionProgress progress = {
      .budget = 50, .n_seen = 100, .n_prompt = 100, .n_next = 100};
  const CompressionOptions grows = With("snapkv", {.memory_bytes = 4000});
  EXPECT_EQ(BudgetPlan(grows, Facts(), progress).RemainingTokens(/*live_bytes=*/2000), 25);
  EXPECT_EQ(BudgetPlan(grows, Facts(), progress).RemainingTokens(4000), 0);
  const CompressionOptions holds = With("h2o", {.memory_bytes = 4000});
  EXPECT_EQ(BudgetPlan(holds, Facts(), progress).RemainingTokens(4000), kMax);
  const CompressionOptions no_limit = With("snapkv", {.size = 16});
  EXPECT_EQ(BudgetPlan(no_limit, Facts(), progress).RemainingTokens(4000), kMax);
}

TEST(BudgetPlan, WhatASequenceReserves) {
  CompressionOptions options = With("snapkv:window=4", {.size = 16});
  const auto found = BudgetPlan(options, Facts(), {}).Reserve(Holding(0), 50, 50, 5);
  ASSERT_TRUE(found.has_value());
  // 16 in three layers and 50 in one; then 21 in each. Lists: 84 slots and an eighth more, and in
  // each head 96 slots and the high part of positions.
  EXPECT_EQ(*found, (Reservation{.steady_bytes = 840,
                                 .prefill_surplus_bytes = 980 - 840,
                                 .list_bytes = (84 + 10 + 4 * 96) * 2 + 4 * 32}));
  options.size = 0;
  options.memory_bytes = 900;
  const BudgetPlan later(options, Facts(), {.budget = 16, .n_seen = 60, .n_prompt = 50});
  EXPECT_EQ(later.Reserve(Holding(16), 0, 1, 100)->steady_bytes, 900) << "not beyond the limit";
  options = With("", {});
  EXPECT_EQ(BudgetPlan(options, Facts(), {}).Reserve(Holding(0), 50, 50, 5)->list_bytes, 0);
}

}  // namespace
}  // namespace winnow::runtime
