#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "compression/registry.h"
#include "compression/testing/every_method.h"
#include "runtime/session/session.h"
#include "runtime/testing/tiny_engine.h"

// Sizes that budgets lead to, and refusals.
namespace winnow::runtime {
namespace {

using testing::Logits;
using testing::Tokens;

class Budget : public ::testing::Test {
 protected:
  std::unique_ptr<Session> Open(const std::string& spec, CompressionOptions compression) {
    if (!spec.empty()) compression.method = compression::MakeMethod(spec).value();
    return Session::Make(*engine_, {.compression = compression}).value();
  }

  std::unique_ptr<Engine> engine_ = testing::TinyEngine(model::testing::MakeTinySpec("llama"));
};

TEST_F(Budget, AShareIsRoundedDown) {
  const auto session = Open("streaming", {.ratio = 0.25});
  ASSERT_TRUE(session->Prefill(Tokens(103)).value());
  EXPECT_EQ(session->budget(), 25);
  EXPECT_EQ(session->kept(0), 25);
}

TEST_F(Budget, AShareBelowWhatAMethodProtectsIsRefused) {
  const auto session = Open("random", {.ratio = 0.05});
  const auto refused = session->Prefill(Tokens(101));
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().message,
            "cache budget: a share of 0.05 of 101 tokens is 5 slots per KV head, random needs at "
            "least 21");
  EXPECT_EQ(session->n_tokens(), 0);
  EXPECT_FALSE(session->Plan(101, 5).has_value());
}

// Bytes of one token in all layers: 3 layers, 2 KV heads, 16 + 16 dimensions in f16.
constexpr int64_t kTokenBytes = 3 * 2 * 2 * 16 * 2;

// A method that lets the cache grow needs the bytes of its prompt, as the full cache does, and
// stops at the limit.
TEST_F(Budget, BytesOfAMethodThatGrows) {
  constexpr int64_t kColumnBytes = 3 * 2 * 2 * 8;  // two numbers per slot
  constexpr int64_t kFixedBytes = 3 * 3 * 8;
  const int64_t limit = kFixedBytes + 20 * (kTokenBytes + kColumnBytes);
  const auto session = Open("pyramidinfer", {.memory_bytes = limit});
  ASSERT_TRUE(session->Prefill(Tokens(5)).has_value());
  EXPECT_EQ(session->room(), 15);
  for (int step = 0; step < 15; ++step) {
    const auto decoded = session->Decode(step);
    ASSERT_TRUE(decoded.has_value()) << decoded.error().message;
    ASSERT_LE(session->cache_bytes(), limit);
  }
  EXPECT_EQ(session->room(), 0);

  session->Reset();
  const auto refused = session->Prefill(Tokens(21));
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().message.find("`prefill_chunk`"), std::string::npos)
      << refused.error().message;
  EXPECT_NE(refused.error().message.find(std::to_string(limit)), std::string::npos);
  EXPECT_TRUE(session->Prefill(Tokens(20)).has_value());
}

TEST_F(Budget, OneThatHoldsItsSizeHasRoomWithoutEnd) {
  const auto session = Open("h2o", {.memory_bytes = 60 * kTokenBytes});
  ASSERT_TRUE(session->Prefill(Tokens(30)).value());
  EXPECT_EQ(session->room(), 128 - 30);
  // The authors' layer policy of d2o does not compress some layers: they grow.
  const int64_t limit = 50 * (kTokenBytes + 3 * 2 * 8);  // one number per slot
  const auto grows =
      Open("d2o:layer_policy=softmax", {.memory_bytes = limit, .reserve_tokens = 10});
  ASSERT_TRUE(grows->Prefill(Tokens(30)).value());
  EXPECT_LE(grows->room(), 20);
  EXPECT_GE(grows->room(), 18);
  while (grows->room() > 0) ASSERT_TRUE(grows->Decode(7).has_value());
  EXPECT_LE(grows->cache_bytes(), limit);
}

// A method that chooses its own size takes no budget.
TEST_F(Budget, AMethodWithoutABudgetRefusesOne) {
  CompressionOptions compression = {.method = compression::MakeMethod("pyramidinfer").value(),
                                    .size = 16};
  const auto refused = Session::Make(*engine_, {.compression = compression});
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().message,
            "`size`: pyramidinfer chooses its own size; remove this option");
}

// Prompts after the first find the cache full. The limit holds at every plan (made when the layer
// is at its peak), and the conversation goes on; only a method that needs the whole prompt in every
// layer at once may refuse one.
TEST_F(Budget, BytesHoldOnEveryPrompt) {
  model::testing::TinySpec tiny = model::testing::MakeTinySpec("llama");
  tiny.context = 512;
  engine_ = testing::TinyEngine(tiny);
  for (const std::string& spec : compression::testing::MethodsAndVariants()) {
    const compression::MethodPtr method = *compression::MakeMethod(spec);
    const compression::Traits& traits = method->traits();
    if (!traits.budget.needed) continue;
    SCOPED_TRACE(spec);
    const int64_t limit = 80 * kTokenBytes;
    int64_t peak = 0;
    int n_read = 0, n_evicting = 0;
    CompressionOptions compression = {.memory_bytes = limit};
    compression.on_plan = [&](const cache::Plan&, const PlanContext& context) {
      peak = std::max(peak, context.cache.live_bytes());
    };
    const auto session = Open(spec, compression);
    for (const int n : {8, 5, 30, 1, 17, 40}) {
      const auto read = session->Prefill(Tokens(n));
      EXPECT_LE(session->cache_bytes(), limit);
      if (!read) {
        ASSERT_TRUE(traits.decisions.WaitsForAllLayers()) << read.error().message;
        break;
      }
      ++n_read;
      if (session->kept(0) < session->n_tokens()) ++n_evicting;
      for (int step = 0; step < 20 && session->room() > 0; ++step) {
        ASSERT_TRUE(session->Decode(step).has_value());
        EXPECT_LE(session->cache_bytes(), limit);
      }
    }
    EXPECT_GE(n_read, 2);
    EXPECT_TRUE(n_evicting > 0 || traits.decisions.WaitsForAllLayers());
    EXPECT_EQ(peak > 0, n_evicting > 0);
    EXPECT_LE(peak, limit);
  }
}

// A later prompt that does not fit in one piece is read in parts, which keep about as much as a
// first prompt would.
TEST_F(Budget, ALaterPromptIsNotReducedToAFewEntries) {
  for (const std::string& spec : compression::testing::MethodNames()) {
    const compression::MethodPtr method = *compression::MakeMethod(spec);
    const compression::Traits& traits = method->traits();
    if (!traits.budget.needed || traits.decisions.WaitsForAllLayers()) continue;
    SCOPED_TRACE(spec);
    const int64_t limit = 40 * kTokenBytes;
    const auto session = Open(spec, {.memory_bytes = limit, .reserve_tokens = 10});
    ASSERT_TRUE(session->Prefill(Tokens(3)).value());
    for (int step = 0; step < 3; ++step) ASSERT_TRUE(session->Decode(step).has_value());
    ASSERT_TRUE(session->Prefill(Tokens(110)).value());
    const bool is_exact = (*compression::MethodPromise(spec, 40)).exact;
    EXPECT_GT(session->cache_bytes(), is_exact ? limit / 3 : limit / 4);
  }
}

TEST_F(Budget, ARefusedPromptChangesNothing) {
  const int64_t limit = 40 * kTokenBytes;
  const auto session = Open("", {.memory_bytes = limit, .prefill_chunk = 8});
  ASSERT_TRUE(session->Prefill(Tokens(20)).value());
  const std::vector<float> before = Logits(*session);
  const auto refused = session->Prefill(Tokens(30));
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().message, "cache: 30 more tokens need " +
                                         std::to_string(50 * kTokenBytes) + " bytes, " +
                                         std::to_string(limit) + " are allowed");
  EXPECT_FALSE(session->CheckRoom(30).has_value());
  EXPECT_EQ(session->n_tokens(), 20);
  EXPECT_EQ(Logits(*session), before);
  EXPECT_TRUE(session->Prefill(Tokens(20)).has_value());
}

TEST_F(Budget, ChunksAreAdvisedWhereTheyHelp) {
  const auto session = Open("streaming", {.memory_bytes = 20 * kTokenBytes});
  const auto refused = session->Prefill(Tokens(100));
  ASSERT_FALSE(refused.has_value());
  EXPECT_NE(refused.error().message.find("`prefill_chunk`"), std::string::npos)
      << refused.error().message;
}

}  // namespace
}  // namespace winnow::runtime
