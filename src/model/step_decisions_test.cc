// Decisions about single tokens are the same whether they overlap with the feed-forward or not.
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>
#include <new>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "model/testing/loaded.h"

namespace winnow::model {
namespace {

using attention::LayerDone;
using testing::kVocabulary;
using testing::Load;
using testing::Loaded;

constexpr int kPrompt = 9;
constexpr kernels::TapSpec kTaps = {.last_rows = 1};

struct Outcome {
  std::vector<int> layers;               // in the order of decisions
  std::vector<std::vector<float>> taps;  // [layer], of the first list
  std::vector<float> logits = std::vector<float>(kVocabulary);
  bool operator==(const Outcome&) const = default;
};

std::unique_ptr<cache::Cache> WithPrompt(const Loaded& loaded) {
  auto cache = loaded.NewCache();
  const std::vector<int32_t> prompt = testing::Tokens(kPrompt, 1);
  const TokenSpan span = testing::MakeSpan(*cache, prompt);
  EXPECT_TRUE(loaded.step->RunAll({&span, 1}).has_value());
  return cache;
}

// A step of one token; every layer evicts the oldest entry of head 0.
Outcome Decode(const Loaded& loaded, cache::Cache& cache, bool on_one_thread) {
  Outcome outcome;
  const int32_t token = 3;
  TokenSpan span = {
      .sequence = {.cache = &cache, .taps = kTaps, .decides_on_one_thread = on_one_thread},
      .tokens = {&token, 1},
      .first_position = kPrompt,
      .last_logits = outcome.logits};
  span.sequence.after_layer = [&](const LayerDone& done) -> Result<void> {
    outcome.layers.push_back(done.layer);
    outcome.taps.push_back(done.taps.last_rows[0]);
    cache::Plan plan = {.layer = done.layer, .heads = {}};
    plan.heads.resize(static_cast<size_t>(cache.config().shape.n_kv_heads));
    plan.heads[0].evict.push_back(cache.order(done.layer, 0)[0]);
    cache.Apply(plan);
    return {};
  };
  EXPECT_TRUE(loaded.step->RunAll({&span, 1}).has_value());
  return outcome;
}

TEST(StepDecisions, BesideTheFeedForwardTheyAreTheSame) {
  for (const char* architecture : {"llama", "falcon"}) {
    for (const int n_threads : {1, 2, 3}) {
      const Loaded loaded = Load(testing::MakeTinySpec(architecture), n_threads);
      const auto at_once = WithPrompt(loaded), later = WithPrompt(loaded);
      const Outcome expected = Decode(loaded, *at_once, false);
      EXPECT_EQ(Decode(loaded, *later, true), expected) << architecture << ' ' << n_threads;
      EXPECT_EQ(std::ssize(expected.layers), at_once->config().shape.n_layers);
      for (int layer = 0; layer < at_once->config().shape.n_layers; ++layer) {
        EXPECT_EQ(later->n_slots(layer, 0), kPrompt);
        EXPECT_TRUE(std::ranges::equal(later->order(layer, 0), at_once->order(layer, 0)));
      }
    }
  }
}

// Loops of a decision run on one thread if it overlaps with the feed-forward, otherwise on all
// threads.
TEST(StepDecisions, TheyOverlapWhereTheyMay) {
  const Loaded loaded = Load(testing::MakeTinySpec("llama"), 2);
  for (const bool on_one_thread : {false, true}) {
    const auto cache = WithPrompt(loaded);
    const int32_t token = 3;
    // Request logits: without them, the last layer has no feed-forward for the decision to overlap
    // with.
    std::vector<float> logits(testing::kVocabulary);
    std::atomic<int> other_threads{0};
    TokenSpan span = {.sequence = {.cache = cache.get(), .decides_on_one_thread = on_one_thread},
                      .tokens = {&token, 1},
                      .first_position = kPrompt,
                      .last_logits = logits};
    span.sequence.after_layer = [&](const LayerDone&) -> Result<void> {
      const auto until = std::chrono::steady_clock::now() + std::chrono::seconds(60);
      loaded.pool->ParallelFor(2, [&](int64_t, int thread) {
        if (thread != 0) ++other_threads;
        // Leaves the second item to the other thread if there is one.
        while (!on_one_thread && thread == 0 && other_threads == 0 &&
               std::chrono::steady_clock::now() < until) {
          std::this_thread::yield();
        }
      });
      return {};
    };
    ASSERT_TRUE(loaded.step->RunAll({&span, 1}).has_value());
    EXPECT_EQ(other_threads == 0, on_one_thread);
  }
}

// A decision is also made when no logits are requested and the last layer therefore skips its
// feed-forward.
TEST(StepDecisions, WithoutLogitsTheLastLayerIsDecided) {
  const Loaded loaded = Load(testing::MakeTinySpec("llama"), 2);
  const auto cache = WithPrompt(loaded);
  const int32_t token = 3;
  std::vector<int> layers;
  TokenSpan span = {
      .sequence = {.cache = cache.get(), .taps = kTaps, .decides_on_one_thread = true},
      .tokens = {&token, 1},
      .first_position = kPrompt};
  span.sequence.after_layer = [&](const LayerDone& done) -> Result<void> {
    layers.push_back(done.layer);
    return {};
  };
  ASSERT_TRUE(loaded.step->RunAll({&span, 1}).has_value());
  EXPECT_EQ(std::ssize(layers), cache->config().shape.n_layers);
}

TEST(StepDecisions, AnErrorEndsTheStepOrItsSequence) {
  const Loaded loaded = Load(testing::MakeTinySpec("llama"));
  const auto failing = WithPrompt(loaded), other = WithPrompt(loaded);
  const std::vector<int32_t> tokens = {3, 4};
  std::vector<float> logits(kVocabulary);
  TokenSpan span = {.sequence = {.cache = failing.get(), .decides_on_one_thread = true},
                    .tokens = std::span(tokens).first(1),
                    .first_position = kPrompt};
  int n_asked = 0;
  span.sequence.after_layer = [&](const LayerDone&) -> Result<void> {
    ++n_asked;
    return Error{"no plan"};
  };
  const auto outcome = loaded.step->RunAll({&span, 1});
  ASSERT_FALSE(outcome.has_value());
  EXPECT_EQ(outcome.error().message, "no plan");
  EXPECT_FALSE(loaded.step->active());

  failing->Truncate(kPrompt);
  std::optional<Error> failure;
  span.sequence.failure = &failure;
  const std::vector<TokenSpan> both = {span,
                                       {.sequence = {.cache = other.get()},
                                        .tokens = std::span(tokens).last(1),
                                        .first_position = kPrompt,
                                        .last_logits = logits}};
  n_asked = 0;
  ASSERT_TRUE(loaded.step->RunAll(both).has_value());
  ASSERT_TRUE(failure.has_value());
  EXPECT_EQ(failure->message, "no plan");
  EXPECT_EQ(n_asked, 1);

  const auto alone = WithPrompt(loaded);
  std::vector<float> expected(kVocabulary);
  const TokenSpan span_alone = {.sequence = {.cache = alone.get()},
                                .tokens = std::span(tokens).last(1),
                                .first_position = kPrompt,
                                .last_logits = expected};
  ASSERT_TRUE(loaded.step->RunAll({&span_alone, 1}).has_value());
  EXPECT_EQ(logits, expected);
}

// std::bad_alloc, as when memory is refused.
TEST(StepDecisions, AnExceptionLeavesAStepThatCanBeAbandoned) {
  const Loaded loaded = Load(testing::MakeTinySpec("llama"), 2);
  const auto cache = WithPrompt(loaded);
  const int32_t token = 3;
  TokenSpan span = {.sequence = {.cache = cache.get(), .decides_on_one_thread = true},
                    .tokens = {&token, 1},
                    .first_position = kPrompt};
  span.sequence.after_layer = [](const LayerDone&) -> Result<void> { throw std::bad_alloc(); };
  ASSERT_TRUE(loaded.step->Begin({&span, 1}).has_value());
  EXPECT_THROW((void)loaded.step->Run(), std::bad_alloc);
  loaded.step->Abandon();
  cache->Truncate(kPrompt);
  span.sequence.after_layer = {};
  EXPECT_TRUE(loaded.step->RunAll({&span, 1}).has_value());
}

}  // namespace
}  // namespace winnow::model
