#include <gtest/gtest.h>

#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "compression/registry.h"
#include "compression/testing/every_method.h"
#include "runtime/session/session.h"
#include "runtime/testing/tiny_engine.h"

// Texts longer than the context, and budgets near it.
namespace winnow::runtime {
namespace {

using testing::Tokens;

constexpr int kContext = 128;  // of the tiny model; also its trained context

class Endless : public ::testing::Test {
 protected:
  Result<std::unique_ptr<Session>> Make(const std::string& spec, CompressionOptions compression) {
    compression.method = compression::MakeMethod(spec).value();
    return Session::Make(*engine_, {.compression = compression});
  }
  std::unique_ptr<Session> Open(const std::string& spec, const CompressionOptions& compression) {
    auto session = Make(spec, compression);
    EXPECT_TRUE(session.has_value()) << session.error().message;
    return std::move(session).value();
  }

  std::unique_ptr<Engine> engine_ = testing::TinyEngine(model::testing::MakeTinySpec("llama"));
};

void ExpectFinite(const Session& session) {
  ASSERT_FALSE(session.logits().empty());
  for (const float logit : session.logits()) ASSERT_TRUE(std::isfinite(logit));
}

// All methods and variants that say they can.
TEST_F(Endless, TextsGoPastTheContext) {
  int n_endless = 0;
  for (const std::string& spec : compression::testing::MethodsAndVariants()) {
    SCOPED_TRACE(spec);
    auto made = Make(spec, {.size = 64});
    if (!made) {
      EXPECT_FALSE(compression::MakeMethod(spec).value()->traits().budget.needed)
          << made.error().message;
      continue;
    }
    const std::unique_ptr<Session> stepped = std::move(made).value();
    if (stepped->capacity() <= kContext) {
      EXPECT_LT(stepped->largest_streaming_budget(), 64);
      continue;
    }
    ++n_endless;
    for (const TokenId token : Tokens(3 * kContext)) {
      const auto decoded = stepped->Decode(token);
      ASSERT_TRUE(decoded.has_value()) << decoded.error().message;
    }
    ExpectFinite(*stepped);
    const auto chunked = Open(spec, {.size = 64, .prefill_chunk = 10});
    const auto prefilled = chunked->Prefill(Tokens(3 * kContext));
    ASSERT_TRUE(prefilled.has_value()) << prefilled.error().message;
    ExpectFinite(*chunked);
  }
  EXPECT_GE(n_endless, 5);
}

// A budget that leaves no room for a call would fill the cache before anything is evicted: the text
// is then limited to the context, and a longer prompt is refused before any work.
TEST_F(Endless, BudgetsNearTheContextBoundTheText) {
  struct Case {
    std::string spec;
    int64_t chunk, largest;
  };
  for (const Case& c : {Case{"streaming", 0, 127}, Case{"streaming", 16, 112},
                        Case{"lm-infinite", 0, 127}, Case{"ems:window=8", 0, 31}}) {
    SCOPED_TRACE(c.spec + ", chunk " + std::to_string(c.chunk));
    const auto fits = Open(c.spec, {.size = c.largest, .prefill_chunk = c.chunk});
    EXPECT_GT(fits->capacity(), 1 << 20);
    EXPECT_EQ(fits->largest_streaming_budget(), c.largest);
    for (int turn = 0; turn < 12; ++turn) {
      const auto prefilled = fits->Prefill(Tokens(c.chunk == 0 ? 1 : 30));
      ASSERT_TRUE(prefilled.has_value()) << prefilled.error().message;
      for (const TokenId token : Tokens(20)) ASSERT_TRUE(fits->Decode(token).has_value());
    }
    ExpectFinite(*fits);

    const auto too_large = Open(c.spec, {.size = c.largest + 1, .prefill_chunk = c.chunk});
    EXPECT_EQ(too_large->capacity(), kContext);
    const auto refused = too_large->Prefill(Tokens(kContext + 1));
    ASSERT_FALSE(refused.has_value());
    EXPECT_NE(refused.error().message.find("context of 128 tokens"), std::string::npos)
        << refused.error().message;
    ASSERT_TRUE(too_large->Prefill(Tokens(kContext)).value());
    EXPECT_EQ(too_large->room(), 0);
    EXPECT_FALSE(too_large->Decode(1).has_value());
    EXPECT_EQ(too_large->n_tokens(), kContext) << "refused before any work";
  }
}

TEST_F(Endless, ManyBytesAreABudgetThatStreams) {
  for (const int64_t chunk : {0, 16}) {
    const auto session =
        Open("streaming", {.memory_bytes = int64_t{1} << 30, .prefill_chunk = chunk});
    ASSERT_TRUE(session->Prefill(Tokens(chunk == 0 ? 100 : 3 * kContext)).value());
    EXPECT_EQ(session->budget(), chunk == 0 ? 127 : 112);
    for (const TokenId token : Tokens(2 * kContext)) {
      ASSERT_TRUE(session->Decode(token).has_value());
    }
    ExpectFinite(*session);
  }
}

TEST_F(Endless, AShareOfALongPromptIsHeldOrRefused) {
  const auto session = Open("streaming", {.ratio = 0.5, .prefill_chunk = 16});
  const auto refused = session->Prefill(Tokens(3 * kContext));
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().message,
            "cache: a budget of 192 slots per KV head fills the context of 128 tokens before "
            "anything is evicted; longer texts need 112 or less");
  EXPECT_EQ(session->n_tokens(), 0);
  ASSERT_TRUE(session->Prefill(Tokens(100)).value());
}

// A prompt on top of held entries, without chunks.
TEST_F(Endless, TooMuchAtOnceIsRefusedBeforeAnyWork) {
  const auto session = Open("streaming", {.size = 100});
  ASSERT_TRUE(session->Prefill(Tokens(110)).value());
  const auto refused = session->Prefill(Tokens(29));
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().message,
            "session: 29 tokens at once on top of 100 entries are more than the context of 128; "
            "with `prefill_chunk` they are taken in parts");
  EXPECT_EQ(session->n_tokens(), 110);
  ASSERT_TRUE(session->Prefill(Tokens(28)).value());
  ExpectFinite(*session);
}

}  // namespace
}  // namespace winnow::runtime
