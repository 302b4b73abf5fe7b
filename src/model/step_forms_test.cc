#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "model/testing/loaded.h"

// Results of steps, for every architecture.
namespace winnow::model {
namespace {

using testing::Load;
using testing::Loaded;
using testing::MakeTinySpec;
using testing::TinySpec;

constexpr int kTokens = 23;

std::vector<int32_t> Tokens() { return testing::Tokens(kTokens); }

struct Way {
  int call = kTokens;  // tokens per step
  int64_t row_block = 512;
};

// Logits of all tokens, [n, vocabulary].
std::vector<float> AllLogits(const Loaded& loaded, const std::vector<int32_t>& tokens, Way way) {
  const auto cache = loaded.NewCache();
  std::vector<float> all;
  const int n = static_cast<int>(tokens.size());
  for (int first = 0; first < n; first += way.call) {
    TokenSpan span = testing::MakeSpan(*cache, tokens, first);
    span.tokens = span.tokens.subspan(static_cast<size_t>(first),
                                      static_cast<size_t>(std::min(way.call, n - first)));
    int64_t next_row = 0;
    span.on_logits = [&](int64_t row, std::span<const float> logits) {
      EXPECT_EQ(row, next_row);
      next_row += static_cast<int64_t>(logits.size()) / testing::kVocabulary;
      all.insert(all.end(), logits.begin(), logits.end());
    };
    const auto done = loaded.step->RunAll({&span, 1}, way.row_block);
    EXPECT_TRUE(done.has_value()) << done.error().message;
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
  EXPECT_GT(largest, 0.1);  // not all logits are about zero
  EXPECT_LE(worst, tolerance * largest);
}

// `found` must equal the last n elements of `all`.
void ExpectSuffix(const std::vector<float>& found, const std::vector<float>& all, size_t n) {
  ASSERT_EQ(found.size(), n);
  if (n == 0) return;
  ExpectClose(found, {all.end() - static_cast<ptrdiff_t>(n), all.end()}, 1e-6);
}

class AllForms : public ::testing::TestWithParam<std::string> {};

TEST_P(AllForms, PrefillEqualsRowBlocksEqualsDecode) {
  const Loaded loaded = Load(MakeTinySpec(GetParam()));
  const std::vector<float> at_once = AllLogits(loaded, Tokens(), {});
  for (const int64_t row_block : {1, 2, 7, 22}) {
    ExpectClose(AllLogits(loaded, Tokens(), {.row_block = row_block}), at_once, 1e-6);
  }
  ExpectClose(AllLogits(loaded, Tokens(), {.call = 1}), at_once, 1e-6);
  ExpectClose(AllLogits(loaded, Tokens(), {.call = 5, .row_block = 3}), at_once, 1e-6);
}

TEST_P(AllForms, TokensInfluenceOnlyWhatFollows) {
  const Loaded loaded = Load(MakeTinySpec(GetParam()));
  std::vector<int32_t> tokens = Tokens();
  const std::vector<float> before = AllLogits(loaded, tokens, {});
  tokens[10] = 69 - tokens[10];
  const std::vector<float> after = AllLogits(loaded, tokens, {});
  const auto row = [&](const std::vector<float>& logits, int i) {
    return std::vector<float>(logits.begin() + i * 70, logits.begin() + (i + 1) * 70);
  };
  for (int i = 0; i < kTokens; ++i) EXPECT_EQ(row(before, i) == row(after, i), i < 10) << i;
}

TEST_P(AllForms, CpuAgreesWithReference) {
  const TinySpec spec = MakeTinySpec(GetParam());
  const std::vector<float> expected = AllLogits(Load(spec), Tokens(), {});
  const Loaded cpu = Load(spec, 2);
  ExpectClose(AllLogits(cpu, Tokens(), {}), expected, 1e-4);
  ExpectClose(AllLogits(cpu, Tokens(), {.call = 1}), expected, 1e-4);
}

TEST_P(AllForms, QuantisedCpuAgreesWithReference) {
  TinySpec spec = MakeTinySpec(GetParam());
  spec.type = gguf::TensorType::kQ8_0;
  // The CPU rounds activations to 8 bits as well.
  ExpectClose(AllLogits(Load(spec, 2), Tokens(), {}), AllLogits(Load(spec), Tokens(), {}), 0.05);
}

TEST_P(AllForms, ThreadsDoNotMatter) {
  for (const gguf::TensorType type : {gguf::TensorType::kF32, gguf::TensorType::kQ8_0}) {
    TinySpec spec = MakeTinySpec(GetParam());
    spec.type = type;
    const Loaded one = Load(spec, 1);
    const std::vector<float> prefill = AllLogits(one, Tokens(), {});
    const std::vector<float> decode = AllLogits(one, Tokens(), {.call = 1});
    for (const int n_threads : {2, 3, 5}) {
      const Loaded several = Load(spec, n_threads);
      EXPECT_EQ(AllLogits(several, Tokens(), {}), prefill) << n_threads;
      EXPECT_EQ(AllLogits(several, Tokens(), {.call = 1}), decode) << n_threads;
    }
  }
}

TEST_P(AllForms, FusedAndSeparateProjectionsAreTheSame) {
  TinySpec spec = MakeTinySpec(GetParam());
  spec.fused_qkv = false;
  const std::vector<float> separate = AllLogits(Load(spec), Tokens(), {});
  spec.fused_qkv = true;
  EXPECT_EQ(AllLogits(Load(spec), Tokens(), {}), separate);
}

// The last layer computes only rows that are read; their logits must not change.
TEST_P(AllForms, SomeLogitsAreTheSameAsAll) {
  const Loaded loaded = Load(MakeTinySpec(GetParam()));
  const std::vector<float> all = AllLogits(loaded, Tokens(), {});
  for (const int64_t from : {0, 1, 10, 22, 23}) {
    for (const int last_rows : {0, 4}) {
      const auto cache = loaded.NewCache();
      const std::vector<int32_t> tokens = Tokens();
      std::vector<float> found, last(testing::kVocabulary);
      TokenSpan span = testing::MakeSpan(*cache, tokens);
      span.logits_from = from;
      span.sequence.taps.last_rows = last_rows;
      span.on_logits = [&](int64_t, std::span<const float> logits) {
        found.insert(found.end(), logits.begin(), logits.end());
      };
      span.last_logits = last;
      ASSERT_TRUE(loaded.step->RunAll({&span, 1}, 8).has_value());
      ExpectClose(last, {all.end() - testing::kVocabulary, all.end()}, 1e-6);
      ExpectSuffix(found, all, static_cast<size_t>(kTokens - from) * 70);
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Forms, AllForms,
                         ::testing::Values("llama", "qwen2", "qwen3", "falcon-7b", "falcon-40b",
                                           "phi3"),
                         [](const auto& param) {
                           std::string name = param.param;
                           std::erase(name, '-');
                           return name;
                         });

TEST(StepForms, TiedOutputIsTheEmbedding) {
  TinySpec spec = MakeTinySpec("llama");
  spec.tied_output = true;
  const Loaded tied = Load(spec);
  spec.tied_output = false;
  const Loaded untied = Load(spec);
  EXPECT_EQ(untied.model->n_parameters() - tied.model->n_parameters(), 70 * 64);
  EXPECT_NE(AllLogits(tied, Tokens(), {}), AllLogits(untied, Tokens(), {}));
}

TEST(StepForms, OptionalBiasesAreUsed) {
  TinySpec spec = MakeTinySpec("llama");
  const std::vector<float> without = AllLogits(Load(spec), Tokens(), {});
  spec.qkv_bias = true;
  const std::vector<float> with_qkv = AllLogits(Load(spec), Tokens(), {});
  spec.other_bias = true;
  const std::vector<float> with_all = AllLogits(Load(spec), Tokens(), {});
  EXPECT_NE(with_qkv, without);
  EXPECT_NE(with_all, with_qkv);
}

TEST(StepForms, FrequencyFactorsAreUsed) {
  TinySpec spec = MakeTinySpec("llama");
  const std::vector<float> without = AllLogits(Load(spec), Tokens(), {});
  spec.rope_freqs = true;
  EXPECT_NE(AllLogits(Load(spec), Tokens(), {}), without);
}

// The reference is a model whose layers are padded with zeros to one width. It gives the same bits,
// because the reference backend sums in order.
TEST(StepForms, LayersMayDifferInWidth) {
  TinySpec spec = MakeTinySpec("llama");
  spec.feed_forward_of_layer = {32, 96, 64};
  const std::vector<float> found = AllLogits(Load(spec), Tokens(), {});
  spec.pad_layers = true;
  EXPECT_EQ(found, AllLogits(Load(spec), Tokens(), {}));
  // The CPU's kernels, with several calls and row blocks; most layers are narrower than the
  // buffers.
  spec.pad_layers = false;
  ExpectClose(AllLogits(Load(spec, 2), Tokens(), {.call = 9, .row_block = 4}), found, 1e-5);
  // The test is sensitive: other widths give other logits.
  spec.feed_forward_of_layer = {96, 96, 96};
  EXPECT_NE(found, AllLogits(Load(spec), Tokens(), {}));
}

}  // namespace
}  // namespace winnow::model
