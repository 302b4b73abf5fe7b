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

}  // namespace
}  // namespace winnow::runtime
