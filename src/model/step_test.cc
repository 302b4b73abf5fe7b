#include "model/step.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <new>
#include <numeric>
#include <string>
#include <vector>

#include "model/testing/loaded.h"

namespace winnow::model {
namespace {

using attention::LayerDone;
using kernels::Taps;
using testing::Load;
using testing::Loaded;
using testing::MakeSpan;
using testing::MakeTinySpec;

constexpr int kTokens = 23;
constexpr int kLayers = 3;

std::vector<int32_t> Tokens(int number = 1) { return testing::Tokens(kTokens, number); }

// Taps of every layer of one step.
std::vector<Taps> RunTaps(const Loaded& loaded, int64_t row_block, const kernels::TapSpec& spec) {
  const auto cache = loaded.NewCache();
  const std::vector<int32_t> tokens = Tokens();
  std::vector<Taps> taps;
  TokenSpan span = MakeSpan(*cache, tokens);
  span.sequence.taps = spec;
  span.sequence.after_layer = [&](const LayerDone& done) -> Result<void> {
    EXPECT_EQ(done.layer, static_cast<int>(taps.size()));
    taps.push_back(done.taps);
    return {};
  };
  EXPECT_TRUE(loaded.step->RunAll({&span, 1}, row_block).has_value());
  return taps;
}

TEST(StepTaps, SumsAndRowsDoNotDependOnRowBlocks) {
  const Loaded loaded = Load(MakeTinySpec("llama"));
  const kernels::TapSpec spec = {.last_rows = 5, .column_sums = true};
  const std::vector<Taps> at_once = RunTaps(loaded, 512, spec);
  ASSERT_EQ(at_once.size(), 3u);
  for (const Taps& taps : at_once) {
    ASSERT_EQ(taps.n_last_rows, 5);
    ASSERT_EQ(taps.last_rows.size(), 2u);
    for (size_t head = 0; head < 2; ++head) {
      ASSERT_EQ(taps.last_rows[head].size(), 5u * kTokens);
      const auto sums = taps.column_sums[head];
      EXPECT_NEAR(std::accumulate(sums.begin(), sums.end(), 0.0), kTokens, 1e-4);
      for (int row = 0; row < 5; ++row) {
        const auto begin = taps.last_rows[head].begin() + row * kTokens;
        EXPECT_NEAR(std::accumulate(begin, begin + kTokens, 0.0), 1.0, 1e-5);
        for (int slot = kTokens - 5 + row + 1; slot < kTokens; ++slot) EXPECT_EQ(begin[slot], 0);
      }
    }
  }
  for (const int64_t row_block : {1, 3, 4, 10}) {
    const std::vector<Taps> blocked = RunTaps(loaded, row_block, spec);
    for (size_t layer = 0; layer < 3; ++layer) {
      ASSERT_EQ(blocked[layer].n_last_rows, 5);
      for (size_t head = 0; head < 2; ++head) {
        ASSERT_EQ(blocked[layer].last_rows[head].size(), 5u * kTokens);
        ASSERT_EQ(blocked[layer].column_sums[head].size(), static_cast<size_t>(kTokens));
        for (size_t i = 0; i < 5u * kTokens; ++i) {
          EXPECT_NEAR(blocked[layer].last_rows[head][i], at_once[layer].last_rows[head][i], 1e-6);
        }
        for (size_t i = 0; i < kTokens; ++i) {
          EXPECT_NEAR(blocked[layer].column_sums[head][i], at_once[layer].column_sums[head][i],
                      1e-5);
        }
      }
    }
  }
}

TEST(StepTaps, LastRowsAloneAreTheSameAsWithSums) {
  const Loaded loaded = Load(MakeTinySpec("qwen3"));
  const std::vector<Taps> both = RunTaps(loaded, 4, {.last_rows = 6, .column_sums = true});
  const std::vector<Taps> rows = RunTaps(loaded, 4, {.last_rows = 6});
  for (size_t layer = 0; layer < 3; ++layer) {
    EXPECT_EQ(rows[layer].last_rows, both[layer].last_rows);
    EXPECT_TRUE(rows[layer].column_sums.empty());
  }
}

// after_layer evicts: layers keep the entries of the plan, and the next token attends to those.
TEST(Step, PlansApplyBetweenLayers) {
  const Loaded loaded = Load(MakeTinySpec("llama"));
  const auto cache = loaded.NewCache();
  const std::vector<int32_t> tokens = Tokens();
  TokenSpan prompt = MakeSpan(*cache, tokens);
  prompt.sequence.after_layer = [&](const LayerDone& done) -> Result<void> {
    if (done.layer == 1) {
      cache::Plan plan = {.layer = 1, .heads = std::vector<cache::HeadPlan>(2)};
      for (cache::Slot slot = 0; slot < kTokens; ++slot) {
        if (slot != 0 && slot < kTokens - 2) plan.heads[0].evict.push_back(slot);
        if (slot != 5 && slot < kTokens - 1) plan.heads[1].evict.push_back(slot);
      }
      cache->Apply(plan);
    }
    EXPECT_EQ(cache->n_slots(done.layer, 0), done.layer == 1 ? 3 : kTokens);
    return {};
  };
  ASSERT_TRUE(loaded.step->RunAll({&prompt, 1}).has_value());

  const std::vector<int32_t> next = {5};
  std::vector<float> logits(testing::kVocabulary);
  TokenSpan token = MakeSpan(*cache, next, kTokens);
  token.last_logits = logits;
  ASSERT_TRUE(loaded.step->RunAll({&token, 1}).has_value());
  EXPECT_TRUE(std::isfinite(std::accumulate(logits.begin(), logits.end(), 0.0f)));
  EXPECT_EQ(cache->n_slots(0, 1), kTokens + 1);
  EXPECT_EQ(cache->n_slots(1, 0), 4);
  EXPECT_EQ(cache->n_slots(1, 1), 3);
  EXPECT_EQ(cache->positions(1, 1)[2], kTokens);
}

TEST(Step, AnErrorOfTheHookEndsTheStep) {
  const Loaded loaded = Load(MakeTinySpec("llama"));
  const auto cache = loaded.NewCache();
  const std::vector<int32_t> tokens = Tokens();
  TokenSpan span = MakeSpan(*cache, tokens);
  span.sequence.after_layer = [](const LayerDone& done) -> Result<void> {
    if (done.layer == 1) return Error{"no plan"};
    return {};
  };
  ASSERT_TRUE(loaded.step->Begin({&span, 1}).has_value());
  const auto outcome = loaded.step->Run();
  ASSERT_FALSE(outcome.has_value());
  EXPECT_EQ(outcome.error().message, "no plan");
  EXPECT_FALSE(loaded.step->active());
}

// std::bad_alloc, as when memory is refused.
TEST(Step, AnExceptionLeavesAStepThatCanBeAbandoned) {
  const Loaded loaded = Load(MakeTinySpec("llama"));
  const auto cache = loaded.NewCache();
  const std::vector<int32_t> tokens = Tokens();
  TokenSpan span = MakeSpan(*cache, tokens);
  span.sequence.after_layer = [](const LayerDone&) -> Result<void> { throw std::bad_alloc(); };
  ASSERT_TRUE(loaded.step->Begin({&span, 1}).has_value());
  EXPECT_THROW((void)loaded.step->Run(), std::bad_alloc);
  loaded.step->Abandon();
  cache->Truncate(0);
  EXPECT_THROW((void)loaded.step->RunAll({&span, 1}), std::bad_alloc);
  EXPECT_FALSE(loaded.step->active());
  cache->Truncate(0);
  const TokenSpan again = MakeSpan(*cache, tokens);
  EXPECT_TRUE(loaded.step->RunAll({&again, 1}).has_value());
}

// Results of a prompt.
struct Outcome {
  std::vector<float> logits;
  std::vector<std::vector<std::vector<float>>> taps;  // [layer][list], the last rows
  bool operator==(const Outcome&) const = default;
};

// A span that records all its logits and taps in `outcome`.
TokenSpan Watched(cache::Cache& cache, const std::vector<int32_t>& tokens, Outcome& outcome) {
  TokenSpan span = MakeSpan(cache, tokens);
  span.sequence.taps = {.last_rows = 4, .column_sums = true};
  span.sequence.after_layer = [&outcome](const LayerDone& done) -> Result<void> {
    outcome.taps.push_back(done.taps.last_rows);
    return {};
  };
  span.on_logits = [&outcome](int64_t, std::span<const float> logits) {
    outcome.logits.insert(outcome.logits.end(), logits.begin(), logits.end());
  };
  return span;
}

// A prompt that is suspended after every row block, while another step decodes another sequence,
// gives the same results as without interruption. So does the other sequence.
TEST(Step, ResumedAtEveryRowBlockIsTheSameAsAtOnce) {
  for (const int n_threads : {0, 2}) {
    const Loaded loaded = Load(MakeTinySpec("llama"), n_threads);
    const std::vector<int32_t> tokens = Tokens();
    const auto decode = [&](Step& step, cache::Cache& cache, int n) {
      const std::vector<int32_t> token = {n};
      std::vector<float> logits(testing::kVocabulary);
      TokenSpan span = MakeSpan(cache, token, n);
      span.last_logits = logits;
      EXPECT_TRUE(step.RunAll({&span, 1}).has_value());
      return logits;
    };
    for (const int64_t row_block : {5, 22, 512}) {
      const auto cache = loaded.NewCache(), resumed_cache = loaded.NewCache();
      const auto other = loaded.NewCache(), other_alone = loaded.NewCache();
      Outcome at_once, resumed;
      const TokenSpan span = Watched(*cache, tokens, at_once);
      ASSERT_TRUE(loaded.step->RunAll({&span, 1}, row_block).has_value());

      const TokenSpan same = Watched(*resumed_cache, tokens, resumed);
      Step decoder(*loaded.model);
      ASSERT_TRUE(loaded.step->Begin({&same, 1}, row_block).has_value());
      std::vector<double> shares;
      for (int n = 0; !loaded.step->Run({.n_blocks = 1}).value(); ++n) {
        shares.push_back(loaded.step->done());
        EXPECT_EQ(decode(decoder, *other, n), decode(decoder, *other_alone, n));
      }
      EXPECT_EQ(resumed, at_once);
      const int64_t n_blocks = kLayers * ((kTokens + row_block - 1) / row_block);
      ASSERT_GE(static_cast<int64_t>(shares.size()), n_blocks);
      EXPECT_TRUE(std::is_sorted(shares.begin(), shares.end()));
      EXPECT_LT(shares[static_cast<size_t>(n_blocks - 1)], 1 + 1e-12);
      EXPECT_DOUBLE_EQ(shares.back(), 1);
    }
  }
}

TEST(Step, ADeadlineThatHasPassedStillDoesABlock) {
  const Loaded loaded = Load(MakeTinySpec("llama"));
  const auto cache = loaded.NewCache();
  const std::vector<int32_t> tokens = Tokens();
  const TokenSpan span = MakeSpan(*cache, tokens);
  ASSERT_TRUE(loaded.step->Begin({&span, 1}, 10).has_value());
  const Quota none = {.deadline = std::chrono::steady_clock::now()};
  double done = 0;
  for (int n = 1; n <= 3 * kLayers; ++n) {
    ASSERT_FALSE(loaded.step->Run(none).value());
    EXPECT_GT(loaded.step->done(), done);
    done = loaded.step->done();
  }
  EXPECT_DOUBLE_EQ(done, 1);
  EXPECT_TRUE(loaded.step->Run(none).value());
}

// Cancellation abandons the step; the step and the sequence can start again.
TEST(Step, AbandonedAtAnyBlockItCanBeginAnew) {
  const Loaded loaded = Load(MakeTinySpec("llama"));
  const std::vector<int32_t> tokens = Tokens();
  Outcome expected;
  const auto fresh = loaded.NewCache();
  const TokenSpan whole = Watched(*fresh, tokens, expected);
  ASSERT_TRUE(loaded.step->RunAll({&whole, 1}, 8).has_value());
  for (int64_t n = 0; n < kLayers * 3; ++n) {
    const auto cache = loaded.NewCache();
    Outcome dropped, again;
    const TokenSpan span = Watched(*cache, tokens, dropped);
    ASSERT_TRUE(loaded.step->Begin({&span, 1}, 8).has_value());
    if (n > 0) {
      ASSERT_FALSE(loaded.step->Run({.n_blocks = n}).value());
    }
    loaded.step->Abandon();
    EXPECT_FALSE(loaded.step->active());
    EXPECT_TRUE(dropped.logits.empty());
    cache->Truncate(0);
    const TokenSpan second = Watched(*cache, tokens, again);
    ASSERT_TRUE(loaded.step->RunAll({&second, 1}, 8).has_value());
    EXPECT_EQ(again, expected);
  }
}

TEST(Step, RefusesWhatDoesNotFit) {
  const Loaded loaded = Load(MakeTinySpec("llama"));
  const auto error = [&](const std::vector<int32_t>& tokens, int32_t position, int64_t capacity) {
    const auto cache = loaded.NewCache(capacity);
    const TokenSpan span = MakeSpan(*cache, tokens, position);
    const auto outcome = loaded.step->RunAll({&span, 1});
    return outcome.has_value() ? std::string("no error") : outcome.error().message;
  };
  EXPECT_EQ(error({1, 70}, 0, 100), "model: token 70 (number 1) is outside the vocabulary of 70");
  EXPECT_EQ(error({-1}, 0, 100), "model: token -1 (number 0) is outside the vocabulary of 70");
  EXPECT_EQ(error({1, 2}, 127, 100), "model: position 128 is beyond the context of 128 tokens");
  EXPECT_EQ(error({1, 2}, 126, 100), "no error");
  EXPECT_EQ(error({1, 2, 3}, 0, 2), "cache: full: layer 0 holds 0 of 2 entries, 3 more do not fit");
}

// A full cache is detected before anything is appended to any cache.
TEST(Step, AFullCacheLeavesTheOthersAsTheyWere) {
  const Loaded loaded = Load(MakeTinySpec("llama"));
  const std::vector<int32_t> tokens = Tokens();
  const auto cache = loaded.NewCache(), small = loaded.NewCache(kTokens - 1);
  const std::vector<TokenSpan> spans = {MakeSpan(*cache, tokens), MakeSpan(*small, tokens)};
  const auto refused = loaded.step->Begin(spans);
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().message,
            "cache: full: layer 0 holds 0 of 22 entries, 23 more do not fit");
  EXPECT_FALSE(loaded.step->active());
  for (int layer = 0; layer < kLayers; ++layer) {
    EXPECT_EQ(cache->n_slots(layer, 0), 0);
    EXPECT_EQ(small->n_slots(layer, 0), 0);
  }
  EXPECT_TRUE(loaded.step->RunAll({spans.data(), 1}).has_value());
}

// A nested step would overwrite buffers that the outer step's callback still reads.
TEST(StepDeathTest, StepsDoNotNest) {
  const Loaded loaded = Load(MakeTinySpec("llama"));
  const auto cache = loaded.NewCache();
  const std::vector<int32_t> tokens = {1};
  const TokenSpan inner = MakeSpan(*cache, tokens);
  TokenSpan outer = inner;
  outer.on_logits = [&](int64_t, std::span<const float>) {
    (void)loaded.step->RunAll({&inner, 1});
  };
  EXPECT_DEATH((void)loaded.step->RunAll({&outer, 1}), "active_");
}

TEST(Step, NoTokensIsNoWork) {
  const Loaded loaded = Load(MakeTinySpec("llama"));
  const auto cache = loaded.NewCache();
  TokenSpan span = MakeSpan(*cache, {});
  span.on_logits = [](int64_t, std::span<const float>) { ADD_FAILURE(); };
  EXPECT_TRUE(loaded.step->RunAll({&span, 1}).has_value());
}

}  // namespace
}  // namespace winnow::model
