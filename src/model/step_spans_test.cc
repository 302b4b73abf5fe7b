// When a span is dropped from a step or fails in it, the others get the same results as alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "model/testing/loaded.h"

namespace winnow::model {
namespace {

using attention::LayerDone;
using testing::Load;
using testing::Loaded;
using testing::MakeTinySpec;

constexpr int kLayers = 3;

struct Prompt {
  Prompt(const Loaded& loaded, int n, int number)
      : tokens(testing::Tokens(n, number)), cache(loaded.NewCache()), logits(testing::kVocabulary) {
    span = testing::MakeSpan(*cache, tokens);
    span.last_logits = logits;
    span.sequence.failure = &failure;
  }
  std::unique_ptr<Prompt> Again(const Loaded& loaded) const {
    auto again = std::make_unique<Prompt>(loaded, 1, 1);
    again->tokens = tokens;
    again->span.tokens = again->tokens;
    return again;
  }
  Prompt(Prompt&&) = delete;

  std::vector<int32_t> tokens;
  std::unique_ptr<cache::Cache> cache;
  std::vector<float> logits;
  std::optional<Error> failure;
  TokenSpan span;
};

std::vector<float> Alone(const Loaded& loaded, const Prompt& prompt) {
  const auto again = prompt.Again(loaded);
  EXPECT_TRUE(loaded.step->RunAll({&again->span, 1}).has_value());
  return again->logits;
}

TEST(StepSpans, OneThatIsDroppedIsNotTouchedAgain) {
  const Loaded loaded = Load(MakeTinySpec("llama"));
  for (int n_before = 0; n_before < 22; ++n_before) {
    Prompt first(loaded, 20, 1), second(loaded, 17, 2), third(loaded, 9, 3);
    const std::vector<TokenSpan> spans = {first.span, second.span, third.span};
    ASSERT_TRUE(loaded.step->Begin(spans, 8).has_value());
    for (int i = 0; i < n_before && loaded.step->active(); ++i) {
      ASSERT_TRUE(loaded.step->Run({.n_blocks = 1}).has_value());
    }
    const bool in_time = loaded.step->active();
    if (in_time) {
      loaded.step->Drop(1);
      second.cache.reset();
    }
    while (loaded.step->active()) ASSERT_TRUE(loaded.step->Run({.n_blocks = 1}).has_value());
    EXPECT_EQ(first.logits, Alone(loaded, first)) << n_before;
    EXPECT_EQ(third.logits, Alone(loaded, third)) << n_before;
    EXPECT_FALSE(first.failure || third.failure);
  }
}

TEST(StepSpans, WithAllDroppedItIsOver) {
  const Loaded loaded = Load(MakeTinySpec("llama"));
  for (const int n_before : {0, 1, 4, 7, 10}) {
    Prompt first(loaded, 20, 1), second(loaded, 17, 2);
    const std::vector<TokenSpan> spans = {first.span, second.span};
    ASSERT_TRUE(loaded.step->Begin(spans, 16).has_value());
    for (int i = 0; i < n_before; ++i) {
      if (loaded.step->active()) {
        ASSERT_TRUE(loaded.step->Run({.n_blocks = 1}).has_value());
      }
    }
    if (!loaded.step->active()) continue;
    loaded.step->Drop(0);
    loaded.step->Drop(1);
    first.cache.reset();
    second.cache.reset();
    EXPECT_TRUE(loaded.step->Run().value());
    EXPECT_TRUE(std::ranges::all_of(first.logits, [](float logit) { return logit == 0; }));
    EXPECT_FALSE(loaded.step->active());
  }
}

// In any layer, for a prompt or a single token.
TEST(StepSpans, AnErrorStaysWithItsSequence) {
  const Loaded loaded = Load(MakeTinySpec("llama"));
  for (const int n_tokens : {1, 17}) {
    for (int layer = 0; layer < kLayers; ++layer) {
      Prompt first(loaded, 20, 1), second(loaded, n_tokens, 2), third(loaded, 1, 3);
      int n_calls = 0;
      second.span.sequence.after_layer = [&](const LayerDone& done) -> Result<void> {
        ++n_calls;
        if (done.layer == layer) return Error{"no plan"};
        return {};
      };
      const std::vector<TokenSpan> spans = {first.span, second.span, third.span};
      ASSERT_TRUE(loaded.step->RunAll(spans, 8).has_value());
      ASSERT_TRUE(second.failure);
      EXPECT_EQ(second.failure->message, "no plan");
      EXPECT_EQ(n_calls, layer + 1);
      EXPECT_EQ(first.logits, Alone(loaded, first));
      EXPECT_EQ(third.logits, Alone(loaded, third));
    }
  }
}

TEST(StepSpans, FewerRowsAtATimeGiveTheSame) {
  const Loaded loaded = Load(MakeTinySpec("llama"));
  for (const int64_t n_rows : {1, 5, 16, 20, 32, 40}) {
    Prompt prompt(loaded, 75, 1);
    ASSERT_TRUE(loaded.step->Begin({&prompt.span, 1}, 64).has_value());
    int64_t n_done = 0;
    while (!loaded.step->Run({.n_blocks = 1, .n_rows = n_rows}).value()) {
      n_done += loaded.step->last_block_rows();
      // The last block is not too small for the kernels of many rows.
      if (n_rows >= 16) {
        EXPECT_GE(loaded.step->last_block_rows(), 16);
      }
      EXPECT_LE(loaded.step->last_block_rows(), std::max<int64_t>(n_rows, 31));
    }
    EXPECT_EQ(n_done, 75 * kLayers);
    EXPECT_EQ(prompt.logits, Alone(loaded, prompt)) << n_rows;
  }
}

}  // namespace
}  // namespace winnow::model
