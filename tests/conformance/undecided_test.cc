// Methods that learn the same from a prompt under every budget: the prompt is read once and
// compressed to several budgets.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <string>
#include <vector>

#include "fixture.h"
#include "runtime/session/undecided_prompt.h"

namespace winnow::conformance {
namespace {

using runtime::SessionOptions;
using runtime::UndecidedPrompt;

std::vector<std::string> MethodsThatLearnForAllBudgets() {
  std::vector<std::string> specs = MethodsAndVariants();
  std::erase_if(specs, [](const std::string& spec) {
    return !MethodTraits(spec).decisions.learns_for_all_budgets;
  });
  return specs;
}

SessionOptions MakeOptions(const std::string& spec) {
  return {.context = 2048, .compression = {.method = compression::MakeMethod(spec).value()}};
}

class EveryMethodUndecided : public ::testing::TestWithParam<std::string> {};

TEST_P(EveryMethodUndecided, IsAsIfItHadBeenReadUnderTheBudget) {
  const auto engine = OpenTiny(2);
  const std::vector<TokenId> prompt = Tokens(150);
  const auto undecided =
      UndecidedPrompt::Read(*engine, MakeOptions(GetParam()), prompt, {}).value();
  // Other sessions use the engine in between, and the budgets come in any order.
  for (const int64_t budget : {40, 149, 25, 40}) {
    SCOPED_TRACE(budget);
    const auto alone = Open(*engine, GetParam(), {.size = budget});
    ASSERT_TRUE(alone->Prefill(prompt).value());
    const auto session = undecided->Compress(budget).value();
    EXPECT_EQ(session->budget(), budget);
    EXPECT_EQ(session->cache_bytes_with_lists(), alone->cache_bytes_with_lists());
    EXPECT_EQ(KeptEverywhere(*session), KeptEverywhere(*alone));
    ASSERT_EQ(Logits(*session), Logits(*alone));
    for (const TokenId token : Tokens(150, 3)) {
      ASSERT_TRUE(session->Decode(token).has_value());
      ASSERT_TRUE(alone->Decode(token).has_value());
    }
    // The next prompt is compressed as well.
    ASSERT_TRUE(session->Prefill(Tokens(60, 7)).value());
    ASSERT_TRUE(alone->Prefill(Tokens(60, 7)).value());
    EXPECT_EQ(KeptEverywhere(*session), KeptEverywhere(*alone));
    EXPECT_EQ(session->cache_bytes_with_lists(), alone->cache_bytes_with_lists());
    ASSERT_EQ(Logits(*session), Logits(*alone));
  }
}

// The shortest prompt that can be left undecided: one token more than the smallest budget.
TEST_P(EveryMethodUndecided, TakesShortPrompts) {
  const auto engine = OpenTiny(2);
  const int64_t least = std::max<int64_t>(1, MethodTraits(GetParam()).budget.min);
  const std::vector<TokenId> prompt = Tokens(static_cast<int>(least) + 1);
  const auto alone = Open(*engine, GetParam(), {.size = least});
  ASSERT_TRUE(alone->Prefill(prompt).value());
  const auto undecided =
      UndecidedPrompt::Read(*engine, MakeOptions(GetParam()), prompt, {}).value();
  const auto session = undecided->Compress(least).value();
  EXPECT_EQ(KeptEverywhere(*session), KeptEverywhere(*alone));
  EXPECT_EQ(Logits(*session), Logits(*alone));
}

// The context has room for the prompt, but not for a replay.
TEST_P(EveryMethodUndecided, IsTheSameWithoutAReplay) {
  model::testing::TinySpec spec = model::testing::MakeTinySpec("llama");
  spec.context = 160;
  const auto engine = runtime::testing::TinyEngine(spec);
  const std::vector<TokenId> prompt = Tokens(150);
  SessionOptions options = MakeOptions(GetParam());
  options.context = 160;
  const auto undecided = UndecidedPrompt::Read(*engine, options, prompt, {}).value();
  for (const int64_t budget : {20, 60}) {
    SCOPED_TRACE(budget);
    const auto alone = Open(*engine, GetParam(), {.size = budget, .context = 160});
    ASSERT_TRUE(alone->Prefill(prompt).value());
    const auto session = undecided->Compress(budget).value();
    EXPECT_EQ(KeptEverywhere(*session), KeptEverywhere(*alone));
    EXPECT_EQ(Logits(*session), Logits(*alone));
  }
}

TEST_P(EveryMethodUndecided, StopsWhenToldTo) {
  const auto engine = OpenTiny(2);
  const std::vector<TokenId> prompt = Tokens(150);
  const auto alone = Open(*engine, GetParam(), {.size = 40});
  ASSERT_TRUE(alone->Prefill(prompt).value());
  // Stop at the first block, the second, and so on, until all blocks are done.
  int n_heeded = 0;
  for (int n_blocks = 0;; ++n_blocks) {
    int left = n_blocks;
    const auto undecided =
        UndecidedPrompt::Read(*engine, MakeOptions(GetParam()), prompt, [&left](double) {
          return left-- > 0;
        }).value();
    if (undecided) {
      EXPECT_EQ(Logits(*undecided->Compress(40).value()), Logits(*alone));
      break;
    }
    // The engine can be used again.
    const auto next = Open(*engine, GetParam(), {.size = 40});
    ASSERT_TRUE(next->Prefill(prompt).value());
    ASSERT_EQ(Logits(*next), Logits(*alone));
    ++n_heeded;
  }
  EXPECT_GT(n_heeded, 3) << "layers of the prompt, and of its replay";
}

INSTANTIATE_TEST_SUITE_P(Methods, EveryMethodUndecided,
                         ::testing::ValuesIn(MethodsThatLearnForAllBudgets()), TestName);

TEST(Undecided, WhereItIsNotPossible) {
  EXPECT_TRUE(UndecidedPrompt::IsPossible(MakeOptions("kvzip")));
  EXPECT_FALSE(UndecidedPrompt::IsPossible(MakeOptions("snapkv")));
  EXPECT_FALSE(UndecidedPrompt::IsPossible({}));
  SessionOptions options = MakeOptions("kvzip");
  options.compression.prefill_chunk = 64;
  EXPECT_FALSE(UndecidedPrompt::IsPossible(options)) << "later chunks go on from the earlier ones";
  options = MakeOptions("kvzip");
  options.compression.memory_bytes = 1 << 20;
  EXPECT_FALSE(UndecidedPrompt::IsPossible(options));
}

// With another method for decode.
TEST(Undecided, OfTwoMethods) {
  const auto engine = OpenTiny(2);
  const std::vector<TokenId> prompt = Tokens(150);
  SessionOptions options = MakeOptions("kvzip");
  options.compression.method =
      compression::WithDecode(options.compression.method, compression::MakeMethod("h2o").value())
          .value();
  options.compression.size = 40;
  ASSERT_TRUE(UndecidedPrompt::IsPossible(options));
  const auto alone = Session::Make(*engine, options).value();
  ASSERT_TRUE(alone->Prefill(prompt).value());
  const auto session =
      UndecidedPrompt::Read(*engine, options, prompt, {}).value()->Compress(40).value();
  for (const TokenId token : Tokens(30, 3)) {
    ASSERT_TRUE(session->Decode(token).has_value());
    ASSERT_TRUE(alone->Decode(token).has_value());
    ASSERT_EQ(Logits(*session), Logits(*alone));
  }
  EXPECT_EQ(KeptEverywhere(*session), KeptEverywhere(*alone));
}

TEST(Undecided, SaysWhatTheSessionSays) {
  const auto engine = OpenTiny(2);
  const auto refused = UndecidedPrompt::Read(*engine, MakeOptions("kvzip"), Tokens(3000), {});
  ASSERT_FALSE(refused.has_value());
  EXPECT_NE(refused.error().message.find("3000"), std::string::npos) << refused.error().message;
}

}  // namespace
}  // namespace winnow::conformance
