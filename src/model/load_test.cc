#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <vector>

#include "base/log.h"
#include "kernels/backends.h"
#include "model/model.h"
#include "model/rope.h"
#include "model/step.h"
#include "model/testing/tiny_model.h"

namespace winnow::model {
namespace {

using gguf::testing::Builder;
using testing::MakeTinySpec;
using testing::TinyBuilder;
using testing::TinySpec;

struct LogLines final : Log {
  void Write(LogLevel level, std::string_view message) override {
    if (level == LogLevel::kWarning) warnings.emplace_back(message);
  }
  std::vector<std::string> warnings;
};

// The backend must outlive the model.
struct Loaded {
  std::unique_ptr<kernels::Backend> backend = kernels::MakeReferenceBackend();
  LogLines log;
  std::unique_ptr<Model> model;
  std::string error = "no error";
};

Loaded Load(const Builder& builder, const LoadOptions& options = {}) {
  Loaded loaded;
  const auto file = gguf::File::Parse(builder.Bytes());
  EXPECT_TRUE(file.has_value()) << file.error().message;
  auto model = Model::Load(*file, *loaded.backend, options, loaded.log);
  if (model) {
    loaded.model = std::move(model).value();
  } else {
    loaded.error = model.error().message;
  }
  return loaded;
}

const TinySpec kLlama = MakeTinySpec("llama");

TEST(Load, ReportsShapeAndSize) {
  const Loaded loaded = Load(TinyBuilder(kLlama));
  ASSERT_EQ(loaded.error, "no error");
  EXPECT_EQ(loaded.model->cache_shape(),
            (cache::CacheShape{.n_layers = 3, .n_kv_heads = 2, .key_dim = 16, .value_dim = 16}));
  EXPECT_EQ(loaded.model->context(), 128);
  // Embedding and output 70 x 64; per layer q and o 64 x 64, k and v 64 x 32, three feed-forward
  // matrices 64 x 96, and two norms; the output norm.
  EXPECT_EQ(loaded.model->n_parameters(),
            2 * 70 * 64 + 3 * (2 * 64 * 64 + 2 * 64 * 32 + 3 * 64 * 96 + 2 * 64) + 64);
  EXPECT_TRUE(loaded.log.warnings.empty());
}

TEST(Load, MissingTensorsAreNamed) {
  for (const std::string form : {"llama", "qwen2", "qwen3", "falcon-7b", "falcon-40b", "phi3"}) {
    const Builder whole = TinyBuilder(MakeTinySpec(form));
    const auto file = gguf::File::Parse(whole.Bytes()).value();
    for (const gguf::Tensor& tensor : file->tensors()) {
      if (tensor.name == "output.weight") continue;              // tied if absent
      if (tensor.name.find("attn_norm_2") != std::string::npos)  // without it: the form of 7B, or
                                                                 // half of it
        continue;
      Builder builder = whole;
      builder.RemoveTensor(tensor.name);
      const std::string error = Load(builder).error;
      // Without the fused matrix, the reader asks for the first of the separate ones.
      const size_t fused = tensor.name.find("attn_qkv");
      const std::string wanted =
          fused == std::string::npos ? tensor.name : tensor.name.substr(0, fused) + "attn_q.weight";
      EXPECT_NE(error.find("tensor " + wanted), std::string::npos) << form << ": " << error;
      EXPECT_NE(error.find("is missing"), std::string::npos) << form << ": " << error;
    }
  }
}

TEST(Load, WrongShapesArePrintedWithTheRightOnes) {
  Builder builder = TinyBuilder(kLlama);
  builder.RemoveTensor("blk.1.attn_k.weight")
      .TensorF32("blk.1.attn_k.weight", {32, 64}, std::vector<float>(32 * 64));
  EXPECT_EQ(Load(builder).error,
            "model: tensor blk.1.attn_k.weight has shape [32, 64], expected [64, 32]");
  builder = TinyBuilder(kLlama);
  builder.RemoveTensor("output_norm.weight")
      .TensorF32("output_norm.weight", {63}, std::vector<float>(63));
  EXPECT_EQ(Load(builder).error, "model: tensor output_norm.weight has shape [63], expected [64]");
}

TEST(Load, EmbeddingRowsMustBeTheVocabulary) {
  Builder builder = TinyBuilder(kLlama);
  builder.Strings("tokenizer.ggml.tokens", std::vector<std::string>(71, "x"));
  EXPECT_EQ(Load(builder).error,
            "model: tensor token_embd.weight has shape [64, 70], expected [64, 71]");
}

TEST(Load, UnexpectedTensorsAreRefusedUnlessHarmless) {
  Builder builder = TinyBuilder(kLlama);
  builder.TensorF32("blk.0.attn_q_norm.weight", {16}, std::vector<float>(16));
  EXPECT_EQ(Load(builder).error,
            "model: tensor blk.0.attn_q_norm.weight [16] is unknown to the architecture llama");
  builder = TinyBuilder(kLlama);
  builder.TensorF32("blk.0.attn_rot_embd.weight", {8}, std::vector<float>(8));
  EXPECT_EQ(Load(builder).error, "no error");
}

TEST(Load, FrequencyFactorsAreChecked) {
  Builder builder = TinyBuilder(kLlama);
  builder.TensorF32("rope_freqs.weight", {8}, {1, 1, 1, 1, 1, 1, 1, 0});
  EXPECT_EQ(Load(builder).error,
            "model: tensor rope_freqs holds 0.000000, expected numbers above 0");
  builder = TinyBuilder(kLlama);
  builder.TensorF32("rope_freqs.weight", {7}, std::vector<float>(7, 1));
  EXPECT_EQ(Load(builder).error, "model: tensor rope_freqs.weight has shape [7], expected [8]");
}

TEST(Load, LongAndShortFrequencyFactors) {
  Builder builder = TinyBuilder(MakeTinySpec("phi3"));
  const std::vector<float> for_short(8, 1.5f), for_long(8, 3.0f);
  builder.TensorF32("rope_factors_short.weight", {8}, for_short);
  builder.TensorF32("rope_factors_long.weight", {8}, for_long);
  const Loaded loaded = Load(builder);
  ASSERT_EQ(loaded.error, "no error");
  EXPECT_EQ(loaded.model->hyperparameters().layer(0).rope.frequency_factors, for_short);
  EXPECT_EQ(loaded.model->hyperparameters().layer(0).rope.frequency_factors_long, for_long);
}

// Positions that only a replay may use do not count towards a long context.
TEST(Load, SpareContextDoesNotChangeTheFrequencyFactors) {
  Builder builder = TinyBuilder(MakeTinySpec("phi3"));
  builder.TensorF32("rope_factors_short.weight", {8}, std::vector<float>(8, 1.5f));
  builder.TensorF32("rope_factors_long.weight", {8}, std::vector<float>(8, 3.0f));
  builder.Uint32("phi3.rope.scaling.original_context_length", 64);
  const auto table = [&](const LoadOptions& options) {
    const Loaded loaded = Load(builder, options);
    EXPECT_EQ(loaded.error, "no error");
    const auto rope = loaded.model->rope(0).Cover(2).value();
    const kernels::Matrix row = rope->table.Rows(1, 1);
    std::vector<float> values(static_cast<size_t>(row.cols));
    loaded.backend->Read(row, values);
    return values;
  };
  EXPECT_EQ(table({.context = 64, .spare_context = 40}), table({.context = 64}));
  EXPECT_NE(table({.context = 65}), table({.context = 64}));
  EXPECT_EQ(Load(builder, {.context = 64, .spare_context = 40}).model->context(), 104);
  EXPECT_EQ(Load(builder, {.context = 64, .spare_context = 400}).model->context(), 128);
}

TEST(Load, ChecksTensorsForNanWhenAsked) {
  for (const float bad :
       {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
    Builder builder = TinyBuilder(kLlama);
    std::vector<float> values(64 * 32, 0.5f);
    values[64 * 3 + 5] = bad;
    builder.RemoveTensor("blk.1.attn_k.weight").TensorF32("blk.1.attn_k.weight", {64, 32}, values);
    EXPECT_EQ(Load(builder).error, "no error");
    const std::string error = Load(builder, {.check_tensors = true}).error;
    EXPECT_NE(error.find("tensor blk.1.attn_k.weight holds "), std::string::npos) << error;
    EXPECT_NE(error.find("at row 3, column 5"), std::string::npos) << error;
  }
  EXPECT_EQ(Load(TinyBuilder(kLlama), {.check_tensors = true}).error, "no error");
}

TEST(Load, ContextInUse) {
  const Loaded shorter = Load(TinyBuilder(kLlama), {.context = 50});
  EXPECT_EQ(shorter.model->context(), 50);
  EXPECT_TRUE(shorter.log.warnings.empty());
  const Loaded longer = Load(TinyBuilder(kLlama), {.context = 129});
  EXPECT_EQ(longer.model->context(), 129);
  ASSERT_EQ(longer.log.warnings.size(), 1u);
  EXPECT_EQ(Load(TinyBuilder(kLlama), {.context = -1}).error,
            "model: a context of -1 tokens is out of range 1..2147483647");
  EXPECT_EQ(Load(TinyBuilder(kLlama), {.context = int64_t{1} << 31}).error,
            "model: a context of 2147483648 tokens is out of range 1..2147483647");
}

// A context of 2^31 - 1 tokens costs nothing before it is used.
TEST(Load, HugeContextsAreCheap) {
  Builder builder = TinyBuilder(kLlama);
  builder.Remove("llama.context_length").Uint32("llama.context_length", 2147483647);
  const Loaded loaded = Load(builder);
  ASSERT_EQ(loaded.error, "no error");
  EXPECT_EQ(loaded.model->context(), 2147483647);
  const auto cache =
      cache::Cache::Make(*loaded.backend, {.shape = loaded.model->cache_shape(), .capacity = 16});
  const std::vector<int32_t> tokens = {1, 2, 3};
  const TokenSpan span = {.sequence = {.cache = cache->get()}, .tokens = tokens};
  Step step(*loaded.model);
  EXPECT_TRUE(step.RunAll({&span, 1}).has_value());
}

TEST(Load, WarnsOfASlidingWindowShorterThanTheContext) {
  Builder builder = TinyBuilder(kLlama);
  builder.Uint32("llama.attention.sliding_window", 64);
  const Loaded loaded = Load(builder);
  ASSERT_EQ(loaded.log.warnings.size(), 1u);
  EXPECT_NE(loaded.log.warnings[0].find("sliding window of 64"), std::string::npos);
  EXPECT_TRUE(Load(builder, {.context = 64}).log.warnings.empty());
}

}  // namespace
}  // namespace winnow::model
