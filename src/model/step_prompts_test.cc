// Several prompts in one step give the same results as each alone.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <vector>

#include "model/testing/loaded.h"

namespace winnow::model {
namespace {

using attention::LayerDone;
using testing::Load;
using testing::Loaded;
using testing::MakeTinySpec;
using testing::TinySpec;

// A prompt, its requests and its results.
struct Prompt {
  std::vector<int32_t> tokens;
  int64_t logits_from = -1;         // -1: only last_logits
  std::vector<int32_t> keeps = {};  // rows that layers after layer 0 compute; empty: all
  std::unique_ptr<cache::Cache> cache = {};
  std::vector<float> logits = {};
  std::vector<float> last_logits = std::vector<float>(testing::kVocabulary);
  std::vector<std::vector<std::vector<double>>> column_sums = {};  // [layer][list]
  int64_t next_row = 0;

  TokenSpan Span() {
    TokenSpan span = testing::MakeSpan(*cache, tokens);
    span.last_logits = last_logits;
    span.sequence.taps = {.last_rows = 3, .column_sums = true};
    span.sequence.after_layer = [this](const LayerDone& done) -> Result<void> {
      column_sums.push_back(done.taps.column_sums);
      return {};
    };
    if (logits_from >= 0) {
      span.logits_from = next_row = logits_from;
      span.on_logits = [this](int64_t row, std::span<const float> rows) {
        EXPECT_EQ(row, next_row);
        next_row += static_cast<int64_t>(rows.size()) / testing::kVocabulary;
        logits.insert(logits.end(), rows.begin(), rows.end());
      };
    }
    if (!keeps.empty()) {
      span.rows_kept = [this](int layer) {
        return layer == 0 ? std::span<const int32_t>(keeps) : std::span<const int32_t>();
      };
    }
    return span;
  }
};

using Prompts = std::vector<Prompt>;

void ExpectSame(const Prompt& found, const Prompt& expected) {
  EXPECT_EQ(found.last_logits, expected.last_logits);
  EXPECT_EQ(found.logits, expected.logits);
  EXPECT_EQ(found.column_sums, expected.column_sums);
  for (int layer = 0; layer < found.cache->config().shape.n_layers; ++layer) {
    EXPECT_EQ(found.cache->n_slots(layer, 0), expected.cache->n_slots(layer, 0));
  }
}

void RunTogether(const Loaded& loaded, Prompts& prompts, int64_t row_block) {
  std::vector<TokenSpan> spans;
  for (Prompt& prompt : prompts) {
    prompt.cache = loaded.NewCache();
    spans.push_back(prompt.Span());
  }
  ASSERT_TRUE(loaded.step->RunAll(spans, row_block).has_value());
}

void RunAlone(const Loaded& loaded, Prompts& prompts, int64_t row_block) {
  for (Prompt& prompt : prompts) {
    prompt.cache = loaded.NewCache();
    const TokenSpan span = prompt.Span();
    ASSERT_TRUE(loaded.step->RunAll({&span, 1}, row_block).has_value());
  }
}

// Long and short prompts, single tokens, some with more logits, some that drop rows.
Prompts Mixed() {
  Prompts prompts;
  prompts.push_back({.tokens = testing::Tokens(17, 1)});
  prompts.push_back({.tokens = testing::Tokens(1, 2)});
  prompts.push_back({.tokens = testing::Tokens(23, 3), .logits_from = 0});
  prompts.push_back({.tokens = testing::Tokens(9, 4), .logits_from = 6});
  prompts.push_back({.tokens = testing::Tokens(12, 5), .keeps = {0, 3, 4, 11}});
  prompts.push_back({.tokens = testing::Tokens(1, 6)});
  prompts.push_back({.tokens = testing::Tokens(8, 7), .keeps = {7}});
  prompts.push_back({.tokens = testing::Tokens(5, 8)});
  return prompts;
}

class EveryFormOfPrompts : public ::testing::TestWithParam<std::string> {};

// Products and attention of the reference backend do not depend on the number of rows.
TEST_P(EveryFormOfPrompts, TogetherIsAloneBitForBit) {
  const Loaded loaded = Load(MakeTinySpec(GetParam()));
  Prompts alone = Mixed();
  RunAlone(loaded, alone, 512);
  for (const int64_t row_block : {512, 76, 40, 18, 17}) {
    SCOPED_TRACE(row_block);
    Prompts together = Mixed();
    RunTogether(loaded, together, row_block);
    for (size_t i = 0; i < together.size(); ++i) {
      SCOPED_TRACE(i);
      if (row_block == 512) {
        ExpectSame(together[i], alone[i]);
      } else {  // column sums add row blocks in a different order
        EXPECT_EQ(together[i].last_logits, alone[i].last_logits);
        EXPECT_EQ(together[i].logits, alone[i].logits);
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Forms, EveryFormOfPrompts,
                         ::testing::Values("llama", "qwen2", "qwen3", "falcon-7b", "falcon-40b",
                                           "phi3"),
                         [](const auto& param_info) {
                           std::string name;
                           for (const char c : param_info.param) name += c == '-' ? '_' : c;
                           return name;
                         });

// The CPU backend multiplies quantised weights with up to 3 rows one by one, and uses tiles from 4
// rows on. Bits are the same for any number of rows in tiles.
TEST(StepPrompts, QuantisedProductsAreTheSameBits) {
  TinySpec spec = MakeTinySpec("llama");
  spec.type = gguf::TensorType::kQ8_0;
  for (const int n_threads : {1, 3}) {
    const Loaded loaded = Load(spec, n_threads);
    const auto make = [] {
      Prompts prompts;
      for (const int n : {23, 8, 40}) prompts.push_back({.tokens = testing::Tokens(n, n)});
      return prompts;
    };
    Prompts alone = make(), together = make();
    RunAlone(loaded, alone, 512);
    RunTogether(loaded, together, 512);
    for (size_t i = 0; i < alone.size(); ++i) ExpectSame(together[i], alone[i]);
  }
}

TEST(StepPrompts, OtherProductsDifferByRounding) {
  for (const auto type : {gguf::TensorType::kF32, gguf::TensorType::kQ8_0}) {
    TinySpec spec = MakeTinySpec("llama");
    spec.type = type;
    const Loaded loaded = Load(spec, 2);
    Prompts alone = Mixed(), together = Mixed();
    RunAlone(loaded, alone, 512);
    RunTogether(loaded, together, 19);
    // An activation rounded to 8 bits may move to the adjacent step.
    const float tolerance = type == gguf::TensorType::kF32 ? 1e-5f : 4e-2f;
    for (size_t i = 0; i < alone.size(); ++i) {
      float largest = 0;
      for (const float logit : alone[i].last_logits) largest = std::max(largest, std::fabs(logit));
      for (size_t k = 0; k < alone[i].last_logits.size(); ++k) {
        ASSERT_NEAR(together[i].last_logits[k], alone[i].last_logits[k], tolerance * largest) << i;
      }
    }
  }
}

}  // namespace
}  // namespace winnow::model
