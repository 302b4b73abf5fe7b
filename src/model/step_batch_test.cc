// Decoding several sequences in one step gives the same results as each alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "model/testing/loaded.h"

namespace winnow::model {
namespace {

using cache::Cache;
using testing::MakeTinySpec;
using testing::TinySpec;

using testing::kVocabulary;
using testing::Load;
using testing::Loaded;

// A sequence, whose cache holds its own prompt.
struct Sequence {
  std::unique_ptr<Cache> cache;
  int32_t next = 0;
  int n = 0;
  std::vector<float> logits = std::vector<float>(kVocabulary);
  int64_t n_attended = 0;
};

Sequence Begin(const Loaded& loaded, int number) {
  Sequence sequence;
  sequence.n = 3 + 5 * (number % 4) + number;
  sequence.next = (7 * number + 1) % kVocabulary;
  sequence.cache = loaded.NewCache(100, kernels::TensorType::kF16);
  const std::vector<int32_t> prompt = testing::Tokens(sequence.n, number);
  const TokenSpan span = testing::MakeSpan(*sequence.cache, prompt);
  EXPECT_TRUE(loaded.step->RunAll({&span, 1}).has_value());
  return sequence;
}

std::vector<Sequence> BeginAll(const Loaded& loaded, int n) {
  std::vector<Sequence> sequences;
  sequences.reserve(static_cast<size_t>(n));
  for (int i = 0; i < n; ++i) sequences.push_back(Begin(loaded, i));
  return sequences;
}

constexpr kernels::TapSpec kTaps = {.last_rows = 2, .column_sums = true};

// Last rows of the taps, [layer][list].
using Found = std::vector<std::vector<std::vector<float>>>;

// The next token of a sequence.
TokenSpan Next(Sequence& sequence, float top_p = 1) {
  return {.sequence = {.cache = sequence.cache.get(),
                       .policy = {.top_p = top_p, .dense_layers = 1},
                       .n_attended = &sequence.n_attended},
          .tokens = {&sequence.next, 1},
          .first_position = sequence.n,
          .last_logits = sequence.logits};
}

void WatchTaps(TokenSpan& span, Found& found) {
  span.sequence.taps = kTaps;
  span.sequence.after_layer = [&found](const attention::LayerDone& done) -> Result<void> {
    found.push_back(done.taps.last_rows);
    return {};
  };
}

void Advance(Sequence& sequence) {
  ++sequence.n;
  sequence.next = (sequence.next * 3 + 5) % kVocabulary;
}

void StepAlone(const Loaded& loaded, Sequence& sequence, float top_p = 1, Found* found = nullptr) {
  TokenSpan span = Next(sequence, top_p);
  if (found != nullptr) WatchTaps(span, *found);
  ASSERT_TRUE(loaded.step->RunAll({&span, 1}).has_value());
  Advance(sequence);
}

void StepTogether(const Loaded& loaded, std::span<Sequence> sequences, float top_p = 1,
                  std::vector<Found>* found = nullptr) {
  std::vector<TokenSpan> spans;
  if (found != nullptr) found->resize(sequences.size());
  for (size_t i = 0; i < sequences.size(); ++i) {
    spans.push_back(Next(sequences[i], top_p));
    if (found != nullptr) WatchTaps(spans.back(), (*found)[i]);
  }
  ASSERT_TRUE(loaded.step->RunAll(spans).has_value());
  for (Sequence& s : sequences) Advance(s);
}

// A backend on which products of up to n_exact rows have the same bits as those of one row.
struct Exact {
  Loaded loaded;
  int n_exact = 0;
};
Exact LoadExact(TinySpec spec, int n_threads) {
  spec.type = gguf::TensorType::kQ8_0;
  return {Load(spec, n_threads), n_threads == 0 ? 11 : 3};
}

class EveryFormTogether : public ::testing::TestWithParam<std::string> {};

TEST_P(EveryFormTogether, TogetherIsAloneBitForBit) {
  for (const int n_threads : {0, 1, 2, 3}) {
    const Exact exact = LoadExact(MakeTinySpec(GetParam()), n_threads);
    const Loaded& loaded = exact.loaded;
    for (const int n : {1, 2, 3, 5, 11}) {
      if (n > exact.n_exact) break;
      SCOPED_TRACE(std::to_string(n_threads) + " threads, " + std::to_string(n) + " sequences");
      std::vector<Sequence> together = BeginAll(loaded, n), alone = BeginAll(loaded, n);
      for (int step = 0; step < 4; ++step) {
        // The last sequence ends before the others.
        const auto n_now = static_cast<size_t>(step < 2 || n == 1 ? n : n - 1);
        StepTogether(loaded, std::span(together).first(n_now));
        for (size_t i = 0; i < n_now; ++i) {
          StepAlone(loaded, alone[i]);
          ASSERT_EQ(together[i].logits, alone[i].logits) << i;
        }
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Forms, EveryFormTogether,
                         ::testing::Values("llama", "qwen2", "qwen3", "falcon-7b", "falcon-40b",
                                           "phi3"),
                         [](const auto& param_info) {
                           std::string name;
                           for (const char c : param_info.param) name += c == '-' ? '_' : c;
                           return name;
                         });

TEST(StepBatch, TapsAndSelectionAreEachSequencesOwn) {
  for (const int n_threads : {0, 2}) {
    const Exact exact = LoadExact(MakeTinySpec("llama"), n_threads);
    const Loaded& loaded = exact.loaded;
    const int n = std::min(exact.n_exact, 5);
    std::vector<Sequence> together = BeginAll(loaded, n), alone = BeginAll(loaded, n);
    std::vector<Found> found;
    StepTogether(loaded, together, 1, &found);
    for (size_t i = 0; i < alone.size(); ++i) {
      Found expected;
      StepAlone(loaded, alone[i], 1, &expected);
      EXPECT_EQ(found[i], expected);
      EXPECT_EQ(together[i].logits, alone[i].logits);
    }
    StepTogether(loaded, together, 0.7f);
    for (size_t i = 0; i < alone.size(); ++i) {
      StepAlone(loaded, alone[i], 0.7f);
      EXPECT_EQ(together[i].logits, alone[i].logits);
      EXPECT_EQ(together[i].n_attended, alone[i].n_attended);
      EXPECT_GT(together[i].n_attended, 0);
    }
  }
}

// Products of many rows use a different kernel: results are close to those of single rows, and have
// the same bits for any number of rows above the threshold.
TEST(StepBatch, ManyRowsAreCloseAndDoNotDependOnTheirNumber) {
  for (const auto type : {gguf::TensorType::kF32, gguf::TensorType::kQ8_0}) {
    TinySpec spec = MakeTinySpec("llama");
    spec.type = type;
    const Loaded loaded = Load(spec, 2);
    std::vector<Sequence> all = BeginAll(loaded, 70), some = BeginAll(loaded, 21),
                          alone = BeginAll(loaded, 21);
    StepTogether(loaded, all);
    StepTogether(loaded, some);
    for (size_t i = 0; i < some.size(); ++i) {
      EXPECT_EQ(some[i].logits, all[i].logits) << i;
      StepAlone(loaded, alone[i]);
      float largest = 0;
      for (const float logit : alone[i].logits) largest = std::max(largest, std::fabs(logit));
      for (size_t k = 0; k < alone[i].logits.size(); ++k) {
        // An activation rounded to 8 bits may move to the adjacent step.
        const float tolerance = type == gguf::TensorType::kF32 ? 1e-5f : 2e-2f;
        ASSERT_NEAR(some[i].logits[k], alone[i].logits[k], tolerance * largest) << i;
      }
    }
  }
}

TEST(StepBatch, RefusesWhatCannotBeBeforeAnythingChanges) {
  const Loaded loaded = Load(MakeTinySpec("llama"), 2);
  std::vector<Sequence> sequences = BeginAll(loaded, 2);
  const auto refused = [&](int32_t token, cache::Position position) {
    std::vector<TokenSpan> spans = {Next(sequences[0]), Next(sequences[1])};
    spans[1].tokens = {&token, 1};
    spans[1].first_position = position;
    const auto begun = loaded.step->Begin(spans);
    EXPECT_FALSE(loaded.step->active());
    return begun.has_value() ? std::string("no error") : begun.error().message;
  };
  EXPECT_EQ(refused(kVocabulary, sequences[1].n),
            "model: token 70 (number 1) is outside the vocabulary of 70");
  EXPECT_EQ(refused(1, 128), "model: position 128 is beyond the context of 128 tokens");
  for (const Sequence& s : sequences) EXPECT_EQ(s.cache->n_slots(0, 0), s.n);
  EXPECT_TRUE(loaded.step->RunAll({}).has_value());
}

TEST(StepBatch, BuffersAreThoseOfTheirShapes) {
  const Loaded loaded = Load(MakeTinySpec("llama"), 2);
  // embedding 64, q 64, k and v 32 each, attended 64, gate and up 192, vocabulary 70; 16 floats of
  // the RoPE table for each of at most 128 positions.
  const int64_t row = 64 + (64 + 32 + 32) + 64 + 192, rope = 128 * 16;
  EXPECT_EQ(BufferBytes(*loaded.model, {.n_tokens = 10}), 4 * (10 * 64 + 10 * row + 2 * 70 + rope));
  EXPECT_EQ(BufferBytes(*loaded.model, {.n_tokens = 10, .row_block = 4, .n_sequences = 3}),
            4 * (10 * 64 + 4 * row + 4 * 70 + rope));
  EXPECT_EQ(BufferBytes(*loaded.model, {.n_tokens = 10, .row_block = 4, .n_sequences = 100}),
            4 * (100 * 64 + 100 * row + 65 * 70 + rope));
}

}  // namespace
}  // namespace winnow::model
