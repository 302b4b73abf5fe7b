#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>
#include <string>
#include <vector>

#include "gguf/testing/builder.h"
#include "model/model.h"

namespace winnow::model {
namespace {

using gguf::testing::Builder;
using Scaling = RopeParameters::Scaling;

// Metadata of a llama with 2 layers, 4 heads of 16 and 2 KV heads; no tensors.
Builder Metadata(const std::string& architecture = "llama") {
  Builder builder;
  builder.String("general.architecture", architecture);
  builder.String("general.name", "test model");
  builder.Uint32(architecture + ".block_count", 2);
  builder.Uint32(architecture + ".context_length", 2048);
  builder.Uint32(architecture + ".embedding_length", 64);
  builder.Uint32(architecture + ".feed_forward_length", 96);
  builder.Uint32(architecture + ".attention.head_count", 4);
  builder.Uint32(architecture + ".attention.head_count_kv", 2);
  builder.Float32(architecture + ".attention.layer_norm_rms_epsilon", 1e-5f);
  builder.Float32(architecture + ".attention.layer_norm_epsilon", 1e-6f);
  builder.Uint32(architecture + ".vocab_size", 70);
  return builder;
}

Result<Hyperparameters> Read(const Builder& builder) {
  const auto file = gguf::File::Parse(builder.Bytes());
  EXPECT_TRUE(file.has_value()) << file.error().message;
  return ReadHyperparameters(**file);
}

std::string ErrorText(const Builder& builder) {
  const auto result = Read(builder);
  return result.has_value() ? "no error" : result.error().message;
}

TEST(ReadHyperparameters, Plain) {
  const Hyperparameters h = Read(Metadata()).value();
  EXPECT_EQ(h.architecture, "llama");
  EXPECT_EQ(h.name, "test model");
  EXPECT_EQ(h.n_layers, 2);
  EXPECT_EQ(h.embedding, 64);
  EXPECT_EQ(h.layers[0].n_heads, 4);
  EXPECT_EQ(h.layers[0].n_kv_heads, 2);
  EXPECT_EQ(h.layers[0].key_dim, 16);
  EXPECT_EQ(h.layers[0].value_dim, 16);
  ASSERT_EQ(h.layers.size(), 2u);
  EXPECT_EQ(h.layers[0].feed_forward, 96);
  EXPECT_EQ(h.layers[1], h.layers[0]);
  EXPECT_TRUE(h.has_equal_heads());
  EXPECT_EQ(h.vocabulary, 70);
  EXPECT_EQ(h.trained_context, 2048);
  EXPECT_FLOAT_EQ(h.norm_epsilon, 1e-5f);
  EXPECT_FLOAT_EQ(h.layers[0].attention_scale, 0.25f);
  EXPECT_EQ(h.layers[0].sliding_window, 0);
  EXPECT_TRUE(h.layers[0].rope.interleaved);
  EXPECT_EQ(h.layers[0].rope.n_rotated, 16);
  EXPECT_EQ(h.layers[0].rope.base, 10000);
  EXPECT_EQ(h.layers[0].rope.scaling, Scaling::kNone);
  EXPECT_EQ(h.layers[0].rope.factor, 1);
  EXPECT_EQ(h.layers[0].rope.original_context, 2048);
  EXPECT_EQ(h.layers[0].rope.attention_factor, 1);
}

TEST(ReadHyperparameters, EveryArchitecture) {
  for (const std::string_view name : SupportedArchitectures()) {
    const auto h = Read(Metadata(std::string(name)));
    ASSERT_TRUE(h.has_value()) << h.error().message;
    EXPECT_EQ(h->layers[0].rope.interleaved, name == "llama") << name;
    EXPECT_FLOAT_EQ(h->norm_epsilon, name == "falcon" ? 1e-6f : 1e-5f) << name;
  }
}

TEST(ReadHyperparameters, KeysThatMayBeAbsentOrOfAnotherWidth) {
  Builder builder = Metadata();
  builder.Remove("llama.attention.head_count_kv").Remove("llama.block_count");
  builder.Uint64("llama.block_count", 3);
  builder.Remove("llama.context_length").Int32("llama.context_length", 4096);
  builder.Remove("general.name");
  builder.Remove("llama.feed_forward_length").Uint32s("llama.feed_forward_length", {96, 32, 64});
  builder.Uint32("llama.attention.key_length", 24).Uint32("llama.attention.value_length", 8);
  builder.Uint32("llama.rope.dimension_count", 12).Float32("llama.rope.freq_base", 5e5f);
  builder.Float32("llama.attention.scale", 0.125f);
  builder.Uint32("llama.attention.sliding_window", 512);
  builder.Strings("tokenizer.ggml.tokens", {"a", "b", "c"});
  const auto result = Read(builder);
  ASSERT_TRUE(result.has_value()) << result.error().message;
  EXPECT_EQ(result->layers[0].n_kv_heads, 4);
  EXPECT_EQ(result->n_layers, 3);
  EXPECT_EQ(result->trained_context, 4096);
  ASSERT_EQ(result->layers.size(), 3u);
  EXPECT_EQ(result->layers[0].feed_forward, 96);
  EXPECT_EQ(result->layers[1].feed_forward, 32);
  EXPECT_EQ(result->layers[2].feed_forward, 64);
  EXPECT_EQ(result->layers[0].key_dim, 24);
  EXPECT_EQ(result->layers[0].value_dim, 8);
  EXPECT_EQ(result->layers[0].rope.n_rotated, 12);
  EXPECT_EQ(result->layers[0].rope.base, 5e5);
  EXPECT_EQ(result->layers[0].attention_scale, 0.125f);
  EXPECT_EQ(result->layers[0].sliding_window, 512);
  EXPECT_EQ(result->vocabulary, 3);  // the token list takes precedence
}

TEST(ReadHyperparameters, RopeScaling) {
  Builder builder = Metadata();
  builder.String("llama.rope.scaling.type", "yarn").Float32("llama.rope.scaling.factor", 4);
  builder.Uint32("llama.rope.scaling.original_context_length", 512);
  builder.Float32("llama.rope.scaling.attn_factor", 1.5f);
  builder.Float32("llama.rope.scaling.yarn_attn_factor", 2);
  builder.Float32("llama.rope.scaling.yarn_ext_factor", 0.5f);
  builder.Float32("llama.rope.scaling.yarn_beta_fast", 16);
  builder.Float32("llama.rope.scaling.yarn_beta_slow", 2);
  const RopeParameters rope = Read(builder)->layers[0].rope;
  EXPECT_EQ(rope.scaling, Scaling::kYarn);
  EXPECT_EQ(rope.factor, 4);
  EXPECT_EQ(rope.original_context, 512);
  EXPECT_EQ(rope.attention_factor, 3);
  EXPECT_EQ(rope.yarn_ext_factor, 0.5);
  EXPECT_EQ(rope.yarn_beta_fast, 16);
  EXPECT_EQ(rope.yarn_beta_slow, 2);

  // The old name of the factor, without a type.
  const RopeParameters old = Read(Metadata().Float32("llama.rope.scale_linear", 2))->layers[0].rope;
  EXPECT_EQ(old.scaling, Scaling::kLinear);
  EXPECT_EQ(old.factor, 2);
  const RopeParameters zero =
      Read(Metadata().Float32("llama.rope.scaling.factor", 0))->layers[0].rope;
  EXPECT_EQ(zero.factor, 1);
  Builder none = Metadata();
  none.String("llama.rope.scaling.type", "none").Float32("llama.rope.scaling.factor", 2);
  EXPECT_EQ(Read(none)->layers[0].rope.factor, 1);
}

TEST(ReadHyperparameters, ContextIsBoundedByPositionsOnly) {
  Builder builder = Metadata();
  builder.Remove("llama.context_length").Uint32("llama.context_length", 2147483647);
  EXPECT_EQ(Read(builder)->trained_context, 2147483647);
}

// A change to valid metadata, and the error message that it must cause.
struct Refusal {
  std::string name;
  std::function<void(Builder&)> change;
  std::string message;
};

void Replace(Builder& builder, const std::string& key, uint64_t value) {
  builder.Remove("llama." + key).Uint64("llama." + key, value);
}
void ReplaceFloat(Builder& builder, const std::string& key, float value) {
  builder.Remove("llama." + key).Float32("llama." + key, value);
}

const float kNan = std::numeric_limits<float>::quiet_NaN();
const float kInfinity = std::numeric_limits<float>::infinity();

const std::vector<Refusal> kRefusals = {
    {"NoArchitecture", [](Builder& b) { b.Remove("general.architecture"); },
     "general.architecture is missing"},
    {"UnknownArchitecture",
     [](Builder& b) { b.Remove("general.architecture").String("general.architecture", "gemma2"); },
     "the architecture 'gemma2' is not supported; supported: falcon, llama, phi3, qwen2, qwen3"},
    {"ArchitectureOfAnotherType",
     [](Builder& b) { b.Remove("general.architecture").Uint32("general.architecture", 1); },
     "general.architecture"},
    {"Experts", [](Builder& b) { b.Uint32("llama.expert_count", 8); },
     "a mixture of 8 experts (llama.expert_count) is not supported"},
    {"SoftCap", [](Builder& b) { b.Float32("llama.attn_logit_softcapping", 50); },
     "llama.attn_logit_softcapping (50) is not supported"},
    {"LogitScale", [](Builder& b) { b.Float32("llama.logit_scale", 0.0625f); },
     "llama.logit_scale (0.0625) is not supported"},

    {"NoBlockCount", [](Builder& b) { b.Remove("llama.block_count"); },
     "llama.block_count is missing"},
    {"ZeroBlockCount", [](Builder& b) { Replace(b, "block_count", 0); },
     "llama.block_count is 0, expected 1..512"},
    {"HugeBlockCount", [](Builder& b) { Replace(b, "block_count", 513); },
     "llama.block_count is 513, expected 1..512"},
    {"BlockCountBeyondInt64", [](Builder& b) { Replace(b, "block_count", ~uint64_t{0}); },
     "llama.block_count"},
    {"BlockCountIsText",
     [](Builder& b) { b.Remove("llama.block_count").String("llama.block_count", "2"); },
     "llama.block_count"},

    {"NoEmbedding", [](Builder& b) { b.Remove("llama.embedding_length"); },
     "llama.embedding_length is missing"},
    {"ZeroEmbedding", [](Builder& b) { Replace(b, "embedding_length", 0); },
     "llama.embedding_length is 0, expected 1..16777216"},
    {"HugeEmbedding", [](Builder& b) { Replace(b, "embedding_length", uint64_t{1} << 40); },
     "llama.embedding_length is 1099511627776, expected 1..16777216"},
    {"NoFeedForward", [](Builder& b) { b.Remove("llama.feed_forward_length"); },
     "llama.feed_forward_length is missing"},
    {"ZeroFeedForward", [](Builder& b) { Replace(b, "feed_forward_length", 0); },
     "llama.feed_forward_length is 0"},

    {"NoContext", [](Builder& b) { b.Remove("llama.context_length"); },
     "llama.context_length is missing"},
    {"ZeroContext", [](Builder& b) { Replace(b, "context_length", 0); },
     "llama.context_length is 0, expected 1..2147483647"},
    {"HugeContext", [](Builder& b) { Replace(b, "context_length", uint64_t{1} << 31); },
     "llama.context_length is 2147483648, expected 1..2147483647"},

    {"NoHeads", [](Builder& b) { b.Remove("llama.attention.head_count"); },
     "llama.attention.head_count is missing"},
    {"ZeroHeads", [](Builder& b) { Replace(b, "attention.head_count", 0); },
     "llama.attention.head_count is 0, expected 1..65536"},
    {"HugeHeads", [](Builder& b) { Replace(b, "attention.head_count", 1 << 20); },
     "llama.attention.head_count is 1048576, expected 1..65536"},
    {"ZeroKvHeads", [](Builder& b) { Replace(b, "attention.head_count_kv", 0); },
     "llama.attention.head_count_kv is 0, expected 1..65536"},
    {"HeadsNotAMultipleOfKvHeads", [](Builder& b) { Replace(b, "attention.head_count_kv", 3); },
     "llama.attention.head_count (4) is not a multiple of llama.attention.head_count_kv (3)"},
    {"MoreKvHeadsThanHeads", [](Builder& b) { Replace(b, "attention.head_count_kv", 8); },
     "llama.attention.head_count (4) is not a multiple of llama.attention.head_count_kv (8)"},
    {"EmbeddingNotAMultipleOfHeads", [](Builder& b) { Replace(b, "attention.head_count", 6); },
     "llama.embedding_length (64) is not a multiple of llama.attention.head_count (6)"},
    {"ShortArray",
     [](Builder& b) {
       b.Remove("llama.attention.head_count_kv").Uint32s("llama.attention.head_count_kv", {2});
     },
     "llama.attention.head_count_kv has 1 values, expected one for each of the 2 layers"},
    {"LongArray",
     [](Builder& b) {
       b.Remove("llama.feed_forward_length").Uint32s("llama.feed_forward_length", {96, 96, 96});
     },
     "llama.feed_forward_length has 3 values, expected one for each of the 2 layers"},
    {"NoMultipleInOneLayer",
     [](Builder& b) {
       b.Remove("llama.attention.head_count_kv").Uint32s("llama.attention.head_count_kv", {2, 3});
     },
     "llama.attention.head_count (4) is not a multiple of llama.attention.head_count_kv (3)"},
    {"LayerWithoutHeads",
     [](Builder& b) {
       b.Remove("llama.attention.head_count").Uint32s("llama.attention.head_count", {4, 0});
     },
     "llama.attention.head_count is 0, expected 1..65536"},
    {"BaseOfAnotherNumberOfLayers",
     [](Builder& b) {
       b.Float32s("llama.rope.freq_base", {10000, 10000, 10000});
     },
     "llama.rope.freq_base has 3 values, expected one for each of the 2 layers"},
    {"ZeroBaseInOneLayer",
     [](Builder& b) {
       b.Float32s("llama.rope.freq_base", {10000, 0});
     },
     "llama.rope.freq_base is 0, expected more than 1"},
    {"RotationBeyondTheHeadOfOneLayer",
     [](Builder& b) {
       b.Uint32s("llama.attention.key_length", {16, 8}).Uint32("llama.rope.dimension_count", 16);
     },
     "llama.rope.dimension_count is 16, expected 2..8"},
    {"ZeroInArray",
     [](Builder& b) {
       b.Remove("llama.feed_forward_length").Uint32s("llama.feed_forward_length", {96, 0});
     },
     "llama.feed_forward_length is 0, expected 1.."},
    {"ArrayOfFloats",
     [](Builder& b) {
       b.Remove("llama.feed_forward_length").Float32s("llama.feed_forward_length", {96, 96});
     },
     "llama.feed_forward_length"},

    {"HugeKeyLength", [](Builder& b) { b.Uint64("llama.attention.key_length", uint64_t{1} << 62); },
     "llama.attention.key_length is 4611686018427387904, expected 2..65536"},
    {"ZeroValueLength", [](Builder& b) { b.Uint32("llama.attention.value_length", 0); },
     "llama.attention.value_length is 0, expected 1..65536"},
    {"NegativeKeyLength", [](Builder& b) { b.Int32("llama.attention.key_length", -16); },
     "llama.attention.key_length is -16, expected 2..65536"},

    {"NoEpsilon", [](Builder& b) { b.Remove("llama.attention.layer_norm_rms_epsilon"); },
     "llama.attention.layer_norm_rms_epsilon is missing"},
    {"ZeroEpsilon", [](Builder& b) { ReplaceFloat(b, "attention.layer_norm_rms_epsilon", 0); },
     "llama.attention.layer_norm_rms_epsilon is 0, expected more than 0"},
    {"NegativeEpsilon",
     [](Builder& b) { ReplaceFloat(b, "attention.layer_norm_rms_epsilon", -1e-5f); },
     "llama.attention.layer_norm_rms_epsilon is -0.00001, expected more than 0"},
    {"NanEpsilon", [](Builder& b) { ReplaceFloat(b, "attention.layer_norm_rms_epsilon", kNan); },
     "llama.attention.layer_norm_rms_epsilon is nan, expected a finite 32-bit number"},

    {"ZeroBase", [](Builder& b) { b.Float32("llama.rope.freq_base", 0); },
     "llama.rope.freq_base is 0, expected more than 1"},
    {"NegativeBase", [](Builder& b) { b.Float32("llama.rope.freq_base", -10000); },
     "llama.rope.freq_base is -10000, expected more than 1"},
    {"InfiniteBase", [](Builder& b) { b.Float32("llama.rope.freq_base", kInfinity); },
     "llama.rope.freq_base is inf, expected a finite 32-bit number"},
    {"OddRotation", [](Builder& b) { b.Uint32("llama.rope.dimension_count", 7); },
     "llama.rope.dimension_count is 7, expected an even number"},
    {"RotationBeyondTheHead", [](Builder& b) { b.Uint32("llama.rope.dimension_count", 32); },
     "llama.rope.dimension_count is 32, expected 2..16"},
    {"UnknownScaling", [](Builder& b) { b.String("llama.rope.scaling.type", "dynamic"); },
     "llama.rope.scaling.type is 'dynamic', supported: none, linear, yarn, longrope"},
    {"UnprintableScaling", [](Builder& b) { b.String("llama.rope.scaling.type", "\x1b[31m\n"); },
     "llama.rope.scaling.type is '\\x1b[31m\\x0a', supported: "},
    {"UnprintableArchitecture",
     [](Builder& b) {
       b.Remove("general.architecture").String("general.architecture", "\x1b]0;x\x07\xff");
     },
     "the architecture '\\x1b]0;x\\x07\\xff' is not supported; supported: "},
    {"NegativeFactor", [](Builder& b) { b.Float32("llama.rope.scaling.factor", -2); },
     "llama.rope.scaling.factor is -2, expected at least 0"},
    {"NegativeExtFactor", [](Builder& b) { b.Float32("llama.rope.scaling.yarn_ext_factor", -1); },
     "llama.rope.scaling.yarn_ext_factor is -1, expected at least 0"},
    {"NanFactor", [](Builder& b) { b.Float32("llama.rope.scaling.factor", kNan); },
     "llama.rope.scaling.factor is nan"},
    {"ZeroAttentionFactor", [](Builder& b) { b.Float32("llama.rope.scaling.attn_factor", 0); },
     "llama.rope.scaling.attn_factor is 0, expected more than 0"},
    {"ZeroOriginalContext",
     [](Builder& b) { b.Uint32("llama.rope.scaling.original_context_length", 0); },
     "llama.rope.scaling.original_context_length is 0"},

    {"NoVocabulary", [](Builder& b) { b.Remove("llama.vocab_size"); },
     "the size of the vocabulary is unknown"},
    {"EmbeddingOfTooManyRows",
     [](Builder& b) {
       constexpr int64_t kRows = (int64_t{1} << 24) + 1;
       b.Remove("llama.vocab_size");
       b.Tensor("token_embd.weight", gguf::TensorType::kF16, {1, kRows},
                std::vector<std::byte>(2 * kRows));
     },
     "the number of rows of token_embd.weight is 16777217, expected 1..16777216"},
    {"ZeroVocabulary", [](Builder& b) { Replace(b, "vocab_size", 0); },
     "llama.vocab_size is 0, expected 1..16777216"},
    {"TokensAreNoList", [](Builder& b) { b.Uint32("tokenizer.ggml.tokens", 70); },
     "tokenizer.ggml.tokens is not a list"},
};

class Refusals : public ::testing::TestWithParam<Refusal> {};

TEST_P(Refusals, NameTheKeyAndTheBounds) {
  Builder builder = Metadata();
  GetParam().change(builder);
  EXPECT_NE(ErrorText(builder).find(GetParam().message), std::string::npos) << ErrorText(builder);
}

INSTANTIATE_TEST_SUITE_P(ReadHyperparameters, Refusals, ::testing::ValuesIn(kRefusals),
                         [](const auto& param) { return param.param.name; });

}  // namespace
}  // namespace winnow::model
