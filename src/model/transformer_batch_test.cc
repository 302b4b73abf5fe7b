// One token of several sequences in one pass gives what each of them gives alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "base/log.h"
#include "base/thread_pool.h"
#include "model/model.h"
#include "model/testing/tiny_model.h"

namespace winnow::model {
namespace {

using cache::Cache;
using testing::TinySpec;
using testing::TinySpecOf;

constexpr int kVocabulary = 70;

struct Loaded {
  std::unique_ptr<ThreadPool> pool;
  std::unique_ptr<kernels::Backend> backend;
  std::unique_ptr<Model> model;
};

// `n_threads` 0: the reference backend, whose products do not depend on the number of rows.
Loaded Load(const TinySpec& spec, int n_threads) {
  Loaded loaded;
  if (n_threads == 0) {
    loaded.backend = kernels::MakeReferenceBackend();
  } else {
    loaded.pool = std::make_unique<ThreadPool>(n_threads);
    loaded.backend = kernels::MakeCpuBackend({.pool = loaded.pool.get(), .target = ""}).value();
  }
  NullLog log;
  loaded.model = Model::Load(testing::TinyModel(spec), *loaded.backend, {}, log).value();
  return loaded;
}

// A sequence: its cache, holding a prompt of its own.
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
  sequence.cache = Cache::Make(*loaded.backend, {.shape = loaded.model->cache_shape(),
                                                 .key_type = kernels::TensorType::kF16,
                                                 .value_type = kernels::TensorType::kF16,
                                                 .capacity = 100})
                       .value();
  std::vector<int32_t> prompt;
  for (int i = 0; i < sequence.n; ++i) prompt.push_back((i * 37 + number * 11) % kVocabulary);
  ForwardRequest request;
  request.tokens = prompt;
  request.cache = sequence.cache.get();
  EXPECT_TRUE(loaded.model->Forward(request).has_value());
  return sequence;
}

std::vector<Sequence> BeginAll(const Loaded& loaded, int n) {
  std::vector<Sequence> sequences;
  for (int i = 0; i < n; ++i) sequences.push_back(Begin(loaded, i));
  return sequences;
}

constexpr kernels::TapSpec kTaps = {.last_rows = 2, .column_sums = true};

// Taps as [layer][list], the last rows.
using Found = std::vector<std::vector<std::vector<float>>>;

void StepAlone(const Loaded& loaded, Sequence& sequence, float top_p = 1, Found* found = nullptr) {
  ForwardRequest request;
  request.tokens = {&sequence.next, 1};
  request.first_position = sequence.n;
  request.cache = sequence.cache.get();
  request.on_logits = [&](int64_t, std::span<const float> logits) {
    sequence.logits.assign(logits.begin(), logits.end());
  };
  request.top_p = top_p;
  request.top_p_from = 1;
  request.n_attended = &sequence.n_attended;
  if (found != nullptr) {
    request.taps = kTaps;
    request.after_layer = [&](int, const kernels::Taps& taps) {
      found->push_back(taps.last_rows);
      return Result<void>();
    };
  }
  ASSERT_TRUE(loaded.model->Forward(request).has_value());
  ++sequence.n;
  sequence.next = (sequence.next * 3 + 5) % kVocabulary;
}

void StepTogether(const Loaded& loaded, std::span<Sequence> sequences, float top_p = 1,
                  std::vector<Found>* found = nullptr) {
  std::vector<BatchRequest::Sequence> batch;
  for (Sequence& s : sequences) {
    batch.push_back({.token = s.next, .position = s.n, .cache = s.cache.get(), .logits = s.logits});
    batch.back().top_p = top_p;
    batch.back().top_p_from = 1;
    batch.back().n_attended = &s.n_attended;
    if (found != nullptr) batch.back().taps = kTaps;
  }
  BatchRequest request = {.sequences = batch};
  if (found != nullptr) {
    found->resize(sequences.size());
    request.after_layer = [&](int, size_t i, const kernels::Taps& taps) {
      (*found)[i].push_back(taps.last_rows);
      return Result<void>();
    };
  }
  ASSERT_TRUE(loaded.model->ForwardBatch(request).has_value());
  for (Sequence& s : sequences) {
    ++s.n;
    s.next = (s.next * 3 + 5) % kVocabulary;
  }
}

// A backend on which up to n_exact rows are multiplied as one is.
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
    const Exact exact = LoadExact(TinySpecOf(GetParam()), n_threads);
    const Loaded& loaded = exact.loaded;
    for (const int n : {1, 2, 3, 5, 11}) {
      if (n > exact.n_exact) break;
      SCOPED_TRACE(std::to_string(n_threads) + " threads, " + std::to_string(n) + " sequences");
      std::vector<Sequence> together = BeginAll(loaded, n), alone = BeginAll(loaded, n);
      for (int step = 0; step < 4; ++step) {
        // The last one ends before the others.
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

TEST(ForwardBatch, TapsAndSelectionAreEachSequencesOwn) {
  for (const int n_threads : {0, 2}) {
    const Exact exact = LoadExact(TinySpecOf("llama"), n_threads);
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

// Many rows of quantised weights are multiplied in another way: close to one row's, and the same
// for any number of rows from there on.
TEST(ForwardBatch, ManyRowsAreCloseAndDoNotDependOnTheirNumber) {
  for (const auto type : {gguf::TensorType::kF32, gguf::TensorType::kQ8_0}) {
    TinySpec spec = TinySpecOf("llama");
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
        // An activation that is rounded to 8 bits may go to the neighbouring step.
        const float tolerance = type == gguf::TensorType::kF32 ? 1e-5f : 2e-2f;
        ASSERT_NEAR(some[i].logits[k], alone[i].logits[k], tolerance * largest) << i;
      }
    }
  }
}

TEST(ForwardBatch, RefusesWhatCannotBeBeforeAnythingChanges) {
  const Loaded loaded = Load(TinySpecOf("llama"), 2);
  std::vector<Sequence> sequences = BeginAll(loaded, 2);
  std::vector<BatchRequest::Sequence> batch;
  for (Sequence& s : sequences) {
    batch.push_back({.token = 1, .position = s.n, .cache = s.cache.get(), .logits = s.logits});
  }
  batch[1].token = kVocabulary;
  auto refused = loaded.model->ForwardBatch({.sequences = batch, .after_layer = {}});
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().message, "model: token 70 (number 1) is outside the vocabulary of 70");
  batch[1].token = 1;
  batch[1].position = 128;
  refused = loaded.model->ForwardBatch({.sequences = batch, .after_layer = {}});
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().message, "model: position 128 is beyond the context of 128 tokens");
  for (const Sequence& s : sequences) EXPECT_EQ(s.cache->n_slots(0, 0), s.n);
  EXPECT_TRUE(loaded.model->ForwardBatch({}).has_value());
}

TEST(ForwardBatch, BuffersAreThoseOfTheirShapes) {
  const Loaded loaded = Load(TinySpecOf("llama"), 2);
  // embedding 64, q 64, k and v 32 each, attended 64, gate and up 192, vocabulary 70; 16 numbers of
  // rotation for each of at most 128 positions.
  const int64_t row = 64 + (64 + 32 + 32) + 64 + 192, rope = 128 * 16;
  EXPECT_EQ(loaded.model->buffer_bytes({.n_tokens = 10}), 4 * (10 * 64 + 10 * row + 2 * 70 + rope));
  EXPECT_EQ(loaded.model->buffer_bytes({.n_tokens = 10, .row_block = 4, .n_sequences = 3}),
            4 * (10 * 64 + 4 * row + 4 * 70 + rope));
  EXPECT_EQ(loaded.model->buffer_bytes({.n_tokens = 10, .row_block = 4, .n_sequences = 100}),
            4 * (100 * 64 + 100 * row + 65 * 70 + rope));
}

}  // namespace
}  // namespace winnow::model
