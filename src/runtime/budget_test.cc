#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "compression/registry.h"
#include "runtime/session.h"
#include "runtime/testing/tiny_engine.h"

// What budgets come to, and what is refused.
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

  std::unique_ptr<Engine> engine_ = testing::TinyEngine(model::testing::TinySpecOf("llama"));
};

TEST_F(Budget, AShareIsRoundedDown) {
  const auto session = Open("streaming", {.ratio = 0.25});
  ASSERT_TRUE(session->Prefill(Tokens(103)).value());
  EXPECT_EQ(session->budget(), 25);
  EXPECT_EQ(session->kept(0), 25);
}

TEST_F(Budget, AShareBelowWhatAMethodProtectsIsRefused) {
  const auto session = Open("treekv", {.ratio = 0.05});
  const auto refused = session->Prefill(Tokens(101));
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().message,
            "cache budget: a share of 0.05 of 101 tokens is 5 slots per KV head, treekv needs at "
            "least 64");
  EXPECT_EQ(session->n_tokens(), 0);
  EXPECT_FALSE(session->FootprintOf(101, 5).has_value());
}

// Of one token, all layers: 3 layers, 2 KV heads, 16 + 16 dimensions in f16.
constexpr int64_t kTokenBytes = 3 * 2 * 2 * 16 * 2;

// A method that lets the cache grow needs what its prompt takes, as the full cache does, and stops
// where the limit is.
TEST_F(Budget, BytesOfAMethodThatGrows) {
  constexpr int64_t kColumnBytes = 3 * 2 * 2 * 8;  // two numbers a slot
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
  EXPECT_EQ(refused.error().message.find("--prefill-chunk"), std::string::npos)
      << refused.error().message;
  EXPECT_NE(refused.error().message.find(std::to_string(limit)), std::string::npos);
  EXPECT_TRUE(session->Prefill(Tokens(20)).has_value());
}

TEST_F(Budget, OneThatHoldsItsSizeHasRoomWithoutEnd) {
  const auto session = Open("h2o", {.memory_bytes = 60 * kTokenBytes});
  ASSERT_TRUE(session->Prefill(Tokens(30)).value());
  EXPECT_EQ(session->room(), 128 - 30);
  // The authors' layer policy of d2o leaves layers alone: they grow.
  const int64_t limit = 50 * (kTokenBytes + 3 * 2 * 8);  // a number a slot
  const auto grows =
      Open("d2o:layer_policy=softmax", {.memory_bytes = limit, .reserve_tokens = 10});
  ASSERT_TRUE(grows->Prefill(Tokens(30)).value());
  EXPECT_LE(grows->room(), 20);
  EXPECT_GE(grows->room(), 18);
  while (grows->room() > 0) ASSERT_TRUE(grows->Decode(7).has_value());
  EXPECT_LE(grows->cache_bytes(), limit);
}

TEST_F(Budget, ChunksAreAdvisedWhereTheyHelp) {
  const auto session = Open("streaming", {.memory_bytes = 20 * kTokenBytes});
  const auto refused = session->Prefill(Tokens(100));
  ASSERT_FALSE(refused.has_value());
  EXPECT_NE(refused.error().message.find("--prefill-chunk"), std::string::npos)
      << refused.error().message;
}

}  // namespace
}  // namespace winnow::runtime
