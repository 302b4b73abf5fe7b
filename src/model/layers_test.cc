#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "model/rope.h"
#include "model/testing/loaded.h"

// Models whose layers differ.
namespace winnow::model {
namespace {

using testing::Load;
using testing::Loaded;
using testing::MakeTinySpec;
using testing::TinySpec;

constexpr int kTokens = 23;

// Logits of the last token; the prompt is read in calls of `n_call` tokens.
std::vector<float> LastLogits(const Loaded& loaded, int n_call = kTokens, int64_t row_block = 512) {
  const auto cache = loaded.NewCache();
  const std::vector<int32_t> tokens = testing::Tokens(kTokens);
  std::vector<float> logits(testing::kVocabulary);
  for (int first = 0; first < kTokens; first += n_call) {
    TokenSpan span = testing::MakeSpan(*cache, tokens, first);
    span.tokens = span.tokens.subspan(static_cast<size_t>(first),
                                      static_cast<size_t>(std::min(n_call, kTokens - first)));
    span.last_logits = logits;
    const auto done = loaded.step->RunAll({&span, 1}, row_block);
    EXPECT_TRUE(done.has_value()) << done.error().message;
  }
  return logits;
}

void ExpectClose(const std::vector<float>& found, const std::vector<float>& expected) {
  ASSERT_EQ(found.size(), expected.size());
  double largest = 0, worst = 0;
  for (size_t i = 0; i < found.size(); ++i) {
    ASSERT_TRUE(std::isfinite(found[i])) << i;
    largest = std::max(largest, std::abs(static_cast<double>(expected[i])));
    worst = std::max(worst, std::abs(static_cast<double>(found[i]) - expected[i]));
  }
  EXPECT_GT(largest, 0.1);
  EXPECT_LE(worst, 2e-5 * largest);
}

// Query heads, KV heads, sizes and widths differ. The first layer is the smallest, so that buffers
// must be as wide as a later layer requires.
TinySpec DifferentLayers() {
  TinySpec spec = MakeTinySpec("llama");
  spec.heads_of_layer = {{.n_heads = 2, .n_kv_heads = 1, .key_dim = 4, .value_dim = 8},
                         {.n_heads = 4, .n_kv_heads = 4, .key_dim = 16, .value_dim = 4},
                         {.n_heads = 4, .n_kv_heads = 2, .key_dim = 16, .value_dim = 16}};
  spec.feed_forward_of_layer = {32, 96, 64};
  spec.rope_dims = 4;
  return spec;
}

// The reference is a model with equal layers, padded so that it computes the same function.
TEST(Layers, DifferInHeadsAndWidthAndComputeTheSameAsPaddedOnes) {
  TinySpec spec = DifferentLayers();
  const Loaded different = Load(spec);
  EXPECT_FALSE(different.model->hyperparameters().has_equal_heads());
  const std::vector<float> found = LastLogits(different);
  spec.pad_layers = true;
  const Loaded padded = Load(spec);
  EXPECT_TRUE(padded.model->hyperparameters().has_equal_heads());
  const std::vector<float> expected = LastLogits(padded);
  ExpectClose(found, expected);
  spec.pad_layers = false;
  for (const int n_threads : {1, 2}) {
    const Loaded loaded = Load(spec, n_threads);
    ExpectClose(LastLogits(loaded), expected);
    ExpectClose(LastLogits(loaded, /*n_call=*/1), expected);  // decoded
    ExpectClose(LastLogits(loaded, /*n_call=*/9, /*row_block=*/4), expected);
  }
  // The test is sensitive: different heads give different logits.
  spec.heads_of_layer[2].n_kv_heads = 4;
  EXPECT_NE(found, LastLogits(Load(spec)));
}

TEST(Layers, CacheHasEachLayersSize) {
  const Loaded loaded = Load(DifferentLayers());
  const auto cache = loaded.NewCache(100, kernels::TensorType::kF16);
  const std::vector<int32_t> tokens = testing::Tokens(kTokens);
  const TokenSpan span = testing::MakeSpan(*cache, tokens);
  ASSERT_TRUE(loaded.step->RunAll({&span, 1}).has_value());
  EXPECT_EQ(cache->bytes_per_slot(0), 2 * (4 + 8));
  EXPECT_EQ(cache->bytes_per_slot(1), 2 * (16 + 4));
  EXPECT_EQ(cache->bytes_per_token(), 2 * (1 * (4 + 8) + 4 * (16 + 4) + 2 * (16 + 16)));
  EXPECT_EQ(cache->live_bytes(), kTokens * cache->bytes_per_token());
  EXPECT_EQ(cache->Heads(0).size(), 1u);
  EXPECT_EQ(cache->Heads(1).size(), 4u);

  // A copy and a snapshot of the cache continue like the cache.
  const auto copy = cache->Copy().value();
  const auto read = loaded.NewCache(100, kernels::TensorType::kF16);
  for (int layer = 0; layer < 3; ++layer) {
    std::string bytes;
    cache->WriteLayer(layer, bytes);
    const auto done = read->ReadLayer(layer, std::as_bytes(std::span(bytes)), kTokens);
    ASSERT_TRUE(done.has_value()) << done.error().message;
  }
  const std::vector<int32_t> next = {5};
  std::vector<std::vector<float>> logits;
  for (cache::Cache* one : {cache.get(), copy.get(), read.get()}) {
    TokenSpan token = testing::MakeSpan(*one, next, kTokens);
    std::vector<float>& out = logits.emplace_back(testing::kVocabulary);
    token.last_logits = out;
    ASSERT_TRUE(loaded.step->RunAll({&token, 1}).has_value());
  }
  EXPECT_EQ(logits[1], logits[0]);
  EXPECT_EQ(logits[2], logits[0]);
}

// A layer's queries and keys before and after RoPE, of all tokens.
struct Rotated {
  std::vector<float> before, after;
};

TEST(Layers, RotateWithTheirOwnBase) {
  TinySpec spec = MakeTinySpec("llama");
  spec.rope_base_of_layer = {10000, 500, 10000};
  const Loaded loaded = Load(spec);
  EXPECT_EQ(loaded.model->n_ropes(), 2u);  // equal parameters share a table
  EXPECT_EQ(loaded.model->rope_of_layer(0), loaded.model->rope_of_layer(2));
  EXPECT_NE(loaded.model->rope_of_layer(0), loaded.model->rope_of_layer(1));
  // BufferBytes counts both tables.
  spec.rope_base_of_layer.clear();
  const BufferUse use = {.n_positions = 100};
  EXPECT_EQ(BufferBytes(*loaded.model, use) - BufferBytes(*Load(spec).model, use),
            loaded.model->rope(1).bytes(100));

  std::vector<Rotated> layers(3);
  const auto cache = loaded.NewCache();
  const std::vector<int32_t> tokens = testing::Tokens(kTokens);
  TokenSpan span = testing::MakeSpan(*cache, tokens);
  span.sequence.on_projections = [&](const attention::Projections& projections) {
    Rotated& layer = layers[static_cast<size_t>(projections.layer)];
    std::vector<float>& keys = projections.rotated ? layer.after : layer.before;
    keys.resize(static_cast<size_t>(projections.k.rows * projections.k.cols));
    loaded.backend->Read(projections.k, keys);
  };
  ASSERT_TRUE(loaded.step->RunAll({&span, 1}).has_value());
  constexpr size_t kDim = 16, kCols = 2 * kDim;
  for (size_t l = 0; l < layers.size(); ++l) {
    const double base = l == 1 ? 500 : 10000;
    ASSERT_EQ(layers[l].after.size(), kTokens * kCols);
    for (size_t i = 0; i < layers[l].after.size(); i += 2) {
      const double pair = static_cast<double>(i % kDim);
      const double angle = static_cast<double>(i / kCols) * std::pow(base, -pair / kDim);
      const double x = layers[l].before[i], y = layers[l].before[i + 1];
      EXPECT_NEAR(layers[l].after[i], x * std::cos(angle) - y * std::sin(angle), 1e-4);
      EXPECT_NEAR(layers[l].after[i + 1], x * std::sin(angle) + y * std::cos(angle), 1e-4);
    }
  }
}

// Doubling a layer's scale squares the ratio of two attention weights, as the taps of layer 1 show.
TEST(Layers, AttendWithTheirOwnScale) {
  TinySpec spec = MakeTinySpec("llama");
  const auto weights = [&](std::vector<float> scales) {
    spec.attention_scale_of_layer = std::move(scales);
    const Loaded loaded = Load(spec);
    const auto cache = loaded.NewCache();
    const std::vector<int32_t> tokens = testing::Tokens(2);
    TokenSpan span = testing::MakeSpan(*cache, tokens);
    std::vector<float> odds;  // [layer], ratio of the last query's two weights
    span.sequence.taps = {.last_rows = 1};
    span.sequence.after_layer = [&](const attention::LayerDone& done) -> Result<void> {
      EXPECT_EQ(done.scale, loaded.model->hyperparameters().layer(done.layer).attention_scale);
      const std::vector<float>& row = done.taps.last_rows[0];
      odds.push_back(row[1] / row[0]);
      return {};
    };
    EXPECT_TRUE(loaded.step->RunAll({&span, 1}).has_value());
    return odds;
  };
  spec.n_kv_heads = 4;  // one query head per KV head, so that a tap is not a mean
  const std::vector<float> plain = weights({0.25f, 0.25f, 0.25f});
  const std::vector<float> scaled = weights({0.25f, 0.5f, 0.25f});
  EXPECT_EQ(scaled[0], plain[0]);
  EXPECT_NEAR(scaled[1], plain[1] * plain[1], 1e-4 * scaled[1]);
  EXPECT_NE(scaled[1], plain[1]);
}

TEST(Layers, ASlidingWindowInSomeIsNamed) {
  gguf::testing::Builder builder = TinyBuilder(MakeTinySpec("llama"));
  builder.Uint32s("llama.attention.sliding_window", {0, 64, 64});
  const auto file = gguf::File::Parse(builder.Bytes()).value();
  const auto backend = kernels::MakeReferenceBackend();
  struct Warnings final : Log {
    void Write(LogLevel level, std::string_view text) override {
      if (level == LogLevel::kWarning) found += text;
    }
    std::string found;
  } log;
  ASSERT_TRUE(Model::Load(file, *backend, {}, log).has_value());
  EXPECT_EQ(log.found,
            "the model's sliding window of 64 tokens in 2 of 3 layers is not applied: every token "
            "attends to all earlier tokens");
}

}  // namespace
}  // namespace winnow::model
