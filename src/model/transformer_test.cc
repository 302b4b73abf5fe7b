#include "model/transformer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "base/log.h"
#include "base/thread_pool.h"
#include "model/testing/tiny_model.h"

namespace winnow::model {
namespace {

using cache::Cache;
using kernels::Backend;
using kernels::Taps;
using testing::TinyModel;
using testing::TinySpec;
using testing::TinySpecOf;

constexpr int kTokens = 23;

std::vector<int32_t> Tokens(int n = kTokens) {
  std::vector<int32_t> tokens;
  for (int i = 0; i < n; ++i) tokens.push_back((i * 37 + 11) % 70);
  return tokens;
}

// A model with its backend.
struct Loaded {
  std::unique_ptr<ThreadPool> pool;
  std::unique_ptr<Backend> backend;
  std::unique_ptr<Model> model;

  std::unique_ptr<Cache> NewCache(int64_t capacity = 100) const {
    return Cache::Make(*backend, {.shape = model->cache_shape(),
                                  .key_type = kernels::TensorType::kF32,
                                  .value_type = kernels::TensorType::kF32,
                                  .capacity = capacity})
        .value();
  }
};

Loaded LoadOn(const TinySpec& spec, std::unique_ptr<Backend> backend,
              std::unique_ptr<ThreadPool> pool = nullptr) {
  NullLog log;
  Loaded loaded = {.pool = std::move(pool), .backend = std::move(backend), .model = nullptr};
  auto model = Model::Load(TinyModel(spec), *loaded.backend, {}, log);
  if (!model) ADD_FAILURE() << model.error().message;
  loaded.model = std::move(model).value();
  return loaded;
}

Loaded Reference(const TinySpec& spec) { return LoadOn(spec, kernels::MakeReferenceBackend()); }

Loaded Cpu(const TinySpec& spec, int n_threads) {
  auto pool = std::make_unique<ThreadPool>(n_threads);
  auto backend = kernels::MakeCpuBackend({.pool = pool.get(), .target = ""}).value();
  return LoadOn(spec, std::move(backend), std::move(pool));
}

struct Way {
  int call = kTokens;  // tokens per Forward
  int64_t row_block = 512;
};

// Logits of all tokens, [n, vocabulary].
std::vector<float> AllLogits(const Loaded& loaded, const std::vector<int32_t>& tokens, Way way) {
  const auto cache = loaded.NewCache();
  std::vector<float> all;
  const int n = static_cast<int>(tokens.size());
  for (int first = 0; first < n; first += way.call) {
    ForwardRequest request;
    request.tokens = std::span(tokens).subspan(static_cast<size_t>(first),
                                               static_cast<size_t>(std::min(way.call, n - first)));
    request.first_position = first;
    request.cache = cache.get();
    request.row_block = way.row_block;
    int64_t next_row = 0;
    request.on_logits = [&](int64_t row, std::span<const float> logits) {
      EXPECT_EQ(row, next_row);
      next_row += static_cast<int64_t>(logits.size()) / loaded.model->hyperparameters().vocabulary;
      all.insert(all.end(), logits.begin(), logits.end());
    };
    const auto outcome = loaded.model->Forward(request);
    EXPECT_TRUE(outcome.has_value()) << outcome.error().message;
  }
  return all;
}

void ExpectClose(const std::vector<float>& found, const std::vector<float>& expected,
                 double tolerance) {
  ASSERT_EQ(found.size(), expected.size());
  double largest = 0, worst = 0;
  for (size_t i = 0; i < found.size(); ++i) {
    ASSERT_TRUE(std::isfinite(found[i])) << i;
    largest = std::max(largest, std::abs(static_cast<double>(expected[i])));
    worst = std::max(worst, std::abs(static_cast<double>(found[i]) - expected[i]));
  }
  EXPECT_GT(largest, 0.1);  // logits that say something
  EXPECT_LE(worst, tolerance * largest);
}

// `found` is what `all` ends with.
void ExpectSuffix(const std::vector<float>& found, const std::vector<float>& all, size_t n) {
  ASSERT_EQ(found.size(), n);
  if (n == 0) return;
  ExpectClose(found, {all.end() - static_cast<ptrdiff_t>(n), all.end()}, 1e-6);
}

class EveryForm : public ::testing::TestWithParam<std::string> {};

TEST_P(EveryForm, PrefillEqualsRowBlocksEqualsDecode) {
  const Loaded loaded = Reference(TinySpecOf(GetParam()));
  const std::vector<float> at_once = AllLogits(loaded, Tokens(), {});
  for (const int64_t row_block : {1, 2, 7, 22}) {
    ExpectClose(AllLogits(loaded, Tokens(), {.row_block = row_block}), at_once, 1e-6);
  }
  ExpectClose(AllLogits(loaded, Tokens(), {.call = 1}), at_once, 1e-6);
  ExpectClose(AllLogits(loaded, Tokens(), {.call = 5, .row_block = 3}), at_once, 1e-6);
}

TEST_P(EveryForm, TokensInfluenceOnlyWhatFollows) {
  const Loaded loaded = Reference(TinySpecOf(GetParam()));
  std::vector<int32_t> tokens = Tokens();
  const std::vector<float> before = AllLogits(loaded, tokens, {});
  tokens[10] = 69 - tokens[10];
  const std::vector<float> after = AllLogits(loaded, tokens, {});
  const auto row = [&](const std::vector<float>& logits, int i) {
    return std::vector<float>(logits.begin() + i * 70, logits.begin() + (i + 1) * 70);
  };
  for (int i = 0; i < kTokens; ++i) EXPECT_EQ(row(before, i) == row(after, i), i < 10) << i;
}

TEST_P(EveryForm, CpuAgreesWithReference) {
  const TinySpec spec = TinySpecOf(GetParam());
  const std::vector<float> expected = AllLogits(Reference(spec), Tokens(), {});
  const Loaded cpu = Cpu(spec, 2);
  ExpectClose(AllLogits(cpu, Tokens(), {}), expected, 1e-4);
  ExpectClose(AllLogits(cpu, Tokens(), {.call = 1}), expected, 1e-4);
}

TEST_P(EveryForm, QuantisedCpuAgreesWithReference) {
  TinySpec spec = TinySpecOf(GetParam());
  spec.type = gguf::TensorType::kQ8_0;
  // The CPU rounds activations to 8 bits as well.
  ExpectClose(AllLogits(Cpu(spec, 2), Tokens(), {}), AllLogits(Reference(spec), Tokens(), {}),
              0.05);
}

TEST_P(EveryForm, ThreadsDoNotMatter) {
  for (const gguf::TensorType type : {gguf::TensorType::kF32, gguf::TensorType::kQ8_0}) {
    TinySpec spec = TinySpecOf(GetParam());
    spec.type = type;
    const Loaded one = Cpu(spec, 1);
    const std::vector<float> prefill = AllLogits(one, Tokens(), {});
    const std::vector<float> decode = AllLogits(one, Tokens(), {.call = 1});
    for (const int n_threads : {2, 3, 5}) {
      const Loaded several = Cpu(spec, n_threads);
      EXPECT_EQ(AllLogits(several, Tokens(), {}), prefill) << n_threads;
      EXPECT_EQ(AllLogits(several, Tokens(), {.call = 1}), decode) << n_threads;
    }
  }
}

TEST_P(EveryForm, FusedAndSeparateProjectionsAreTheSame) {
  TinySpec spec = TinySpecOf(GetParam());
  spec.fused_qkv = false;
  const std::vector<float> separate = AllLogits(Reference(spec), Tokens(), {});
  spec.fused_qkv = true;
  EXPECT_EQ(AllLogits(Reference(spec), Tokens(), {}), separate);
}

// The last layer computes only rows that are read; what is read must not change.
TEST_P(EveryForm, SomeLogitsAreTheSameAsAll) {
  const Loaded loaded = Reference(TinySpecOf(GetParam()));
  const std::vector<float> all = AllLogits(loaded, Tokens(), {});
  for (const int64_t from : {0, 1, 10, 22, 23}) {
    for (const int last_rows : {0, 4}) {
      const auto cache = loaded.NewCache();
      const std::vector<int32_t> tokens = Tokens();
      std::vector<float> found;
      ForwardRequest request;
      request.tokens = tokens;
      request.cache = cache.get();
      request.row_block = 8;
      request.logits_from = from;
      request.taps.last_rows = last_rows;
      request.on_logits = [&](int64_t, std::span<const float> logits) {
        found.insert(found.end(), logits.begin(), logits.end());
      };
      ASSERT_TRUE(loaded.model->Forward(request).has_value());
      ExpectSuffix(found, all, static_cast<size_t>(kTokens - from) * 70);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Forms, EveryForm,
                         ::testing::Values("llama", "qwen2", "qwen3", "falcon-7b", "falcon-40b",
                                           "phi3"),
                         [](const auto& param) {
                           std::string name = param.param;
                           std::erase(name, '-');
                           return name;
                         });

TEST(Transformer, TiedOutputIsTheEmbedding) {
  TinySpec spec = TinySpecOf("llama");
  spec.tied_output = true;
  const Loaded tied = Reference(spec);
  spec.tied_output = false;
  const Loaded untied = Reference(spec);
  EXPECT_EQ(untied.model->n_parameters() - tied.model->n_parameters(), 70 * 64);
  EXPECT_NE(AllLogits(tied, Tokens(), {}), AllLogits(untied, Tokens(), {}));
}

TEST(Transformer, OptionalBiasesAreUsed) {
  TinySpec spec = TinySpecOf("llama");
  const std::vector<float> without = AllLogits(Reference(spec), Tokens(), {});
  spec.qkv_bias = true;
  const std::vector<float> with_qkv = AllLogits(Reference(spec), Tokens(), {});
  spec.other_bias = true;
  const std::vector<float> with_all = AllLogits(Reference(spec), Tokens(), {});
  EXPECT_NE(with_qkv, without);
  EXPECT_NE(with_all, with_qkv);
}

TEST(Transformer, FrequencyFactorsAreUsed) {
  TinySpec spec = TinySpecOf("llama");
  const std::vector<float> without = AllLogits(Reference(spec), Tokens(), {});
  spec.rope_freqs = true;
  EXPECT_NE(AllLogits(Reference(spec), Tokens(), {}), without);
}

// Taps of every layer of one call.
std::vector<Taps> TapsOf(const Loaded& loaded, int64_t row_block, const kernels::TapSpec& spec) {
  const auto cache = loaded.NewCache();
  const std::vector<int32_t> tokens = Tokens();
  std::vector<Taps> taps;
  ForwardRequest request;
  request.tokens = tokens;
  request.cache = cache.get();
  request.row_block = row_block;
  request.taps = spec;
  request.after_layer = [&](int layer, const Taps& found) -> Result<void> {
    EXPECT_EQ(layer, static_cast<int>(taps.size()));
    taps.push_back(found);
    return {};
  };
  EXPECT_TRUE(loaded.model->Forward(request).has_value());
  return taps;
}

TEST(TransformerTaps, SumsAndRowsDoNotDependOnRowBlocks) {
  const Loaded loaded = Reference(TinySpecOf("llama"));
  const kernels::TapSpec spec = {.last_rows = 5, .column_sums = true};
  const std::vector<Taps> at_once = TapsOf(loaded, 512, spec);
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
    const std::vector<Taps> blocked = TapsOf(loaded, row_block, spec);
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

TEST(TransformerTaps, LastRowsAloneAreTheSameAsWithSums) {
  const Loaded loaded = Reference(TinySpecOf("qwen3"));
  const std::vector<Taps> both = TapsOf(loaded, 4, {.last_rows = 6, .column_sums = true});
  const std::vector<Taps> rows = TapsOf(loaded, 4, {.last_rows = 6});
  for (size_t layer = 0; layer < 3; ++layer) {
    EXPECT_EQ(rows[layer].last_rows, both[layer].last_rows);
    EXPECT_TRUE(rows[layer].column_sums.empty());
  }
}

// A hook that evicts: layers keep what the plan says, and the next token attends over that.
TEST(Transformer, PlansApplyBetweenLayers) {
  const Loaded loaded = Reference(TinySpecOf("llama"));
  const auto cache = loaded.NewCache();
  const std::vector<int32_t> tokens = Tokens();
  ForwardRequest request;
  request.tokens = tokens;
  request.cache = cache.get();
  request.after_layer = [&](int layer, const Taps&) -> Result<void> {
    if (layer == 1) {
      cache::Plan plan = {.layer = 1, .heads = std::vector<cache::HeadPlan>(2)};
      for (cache::Slot slot = 0; slot < kTokens; ++slot) {
        if (slot != 0 && slot < kTokens - 2) plan.heads[0].evict.push_back(slot);
        if (slot != 5 && slot < kTokens - 1) plan.heads[1].evict.push_back(slot);
      }
      cache->Apply(plan);
    }
    EXPECT_EQ(cache->n_slots(layer, 0), layer == 1 ? 3 : kTokens);
    return {};
  };
  ASSERT_TRUE(loaded.model->Forward(request).has_value());

  const std::vector<int32_t> next = {5};
  request.tokens = next;
  request.first_position = kTokens;
  request.after_layer = nullptr;
  float sum = 0;
  request.on_logits = [&](int64_t, std::span<const float> logits) {
    sum = std::accumulate(logits.begin(), logits.end(), 0.0f);
  };
  ASSERT_TRUE(loaded.model->Forward(request).has_value());
  EXPECT_TRUE(std::isfinite(sum));
  EXPECT_EQ(cache->n_slots(0, 1), kTokens + 1);
  EXPECT_EQ(cache->n_slots(1, 0), 4);
  EXPECT_EQ(cache->n_slots(1, 1), 3);
  EXPECT_EQ(cache->positions(1, 1)[2], kTokens);
}

TEST(Transformer, AnErrorOfTheHookEndsTheCall) {
  const Loaded loaded = Reference(TinySpecOf("llama"));
  const auto cache = loaded.NewCache();
  const std::vector<int32_t> tokens = Tokens();
  ForwardRequest request;
  request.tokens = tokens;
  request.cache = cache.get();
  request.after_layer = [](int layer, const Taps&) -> Result<void> {
    if (layer == 1) return Error{"no plan"};
    return {};
  };
  const auto outcome = loaded.model->Forward(request);
  ASSERT_FALSE(outcome.has_value());
  EXPECT_EQ(outcome.error().message, "no plan");
}

TEST(Transformer, ProgressRisesToOneAndStops) {
  const Loaded loaded = Reference(TinySpecOf("llama"));
  const std::vector<int32_t> tokens = Tokens();
  ForwardRequest request;
  request.tokens = tokens;
  request.row_block = 5;
  std::vector<double> shares;
  request.progress = [&](double done) {
    shares.push_back(done);
    return true;
  };
  const auto cache = loaded.NewCache();
  request.cache = cache.get();
  ASSERT_FALSE(loaded.model->Forward(request)->stopped);
  EXPECT_EQ(shares.size(), 3u * 5u);
  EXPECT_TRUE(std::is_sorted(shares.begin(), shares.end()));
  EXPECT_DOUBLE_EQ(shares.back(), 1);

  bool gave_logits = false;
  request.on_logits = [&](int64_t, std::span<const float>) { gave_logits = true; };
  request.progress = [](double done) { return done < 0.5; };
  const auto second = loaded.NewCache();
  request.cache = second.get();
  EXPECT_TRUE(loaded.model->Forward(request)->stopped);
  EXPECT_FALSE(gave_logits);
}

TEST(Transformer, RefusesWhatDoesNotFit) {
  const Loaded loaded = Reference(TinySpecOf("llama"));
  const auto error = [&](const std::vector<int32_t>& tokens, int32_t position, int64_t capacity) {
    const auto cache = loaded.NewCache(capacity);
    ForwardRequest request;
    request.tokens = tokens;
    request.first_position = position;
    request.cache = cache.get();
    const auto outcome = loaded.model->Forward(request);
    return outcome.has_value() ? std::string("no error") : outcome.error().message;
  };
  EXPECT_EQ(error({1, 70}, 0, 100), "model: token 70 (number 1) is outside the vocabulary of 70");
  EXPECT_EQ(error({-1}, 0, 100), "model: token -1 (number 0) is outside the vocabulary of 70");
  EXPECT_EQ(error({1, 2}, 127, 100), "model: position 128 is beyond the context of 128 tokens");
  EXPECT_EQ(error({1, 2}, 126, 100), "no error");
  EXPECT_EQ(error({1, 2, 3}, 0, 2), "cache: full: layer 0 holds 0 of 2 entries, 3 more do not fit");
}

// A second call would overwrite what the first one's callback still reads.
TEST(TransformerDeathTest, CallsDoNotNest) {
  const Loaded loaded = Reference(TinySpecOf("llama"));
  const auto cache = loaded.NewCache();
  const std::vector<int32_t> tokens = {1};
  ForwardRequest request;
  request.tokens = tokens;
  request.cache = cache.get();
  ForwardRequest outer = request;
  outer.on_logits = [&](int64_t, std::span<const float>) { (void)loaded.model->Forward(request); };
  EXPECT_DEATH((void)loaded.model->Forward(outer), "at_work_");
}

TEST(Transformer, NoTokensIsNoWork) {
  const Loaded loaded = Reference(TinySpecOf("llama"));
  const auto cache = loaded.NewCache();
  ForwardRequest request;
  request.cache = cache.get();
  request.on_logits = [](int64_t, std::span<const float>) { ADD_FAILURE(); };
  EXPECT_TRUE(loaded.model->Forward(request).has_value());
}

}  // namespace
}  // namespace winnow::model
