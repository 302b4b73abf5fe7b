#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <memory>
#include <vector>

#include "base/log.h"
#include "kernels/backends.h"
#include "model/step.h"
#include "model/testing/tiny_model.h"

// Distances between queries and keys limited to a cap (cache::PositionMode::kCapped).
namespace winnow::model {
namespace {

using cache::Cache;

constexpr int kPrompt = 8;
constexpr int kTokens = 40;

std::vector<int32_t> Tokens() {
  std::vector<int32_t> tokens;
  tokens.reserve(kTokens);
  for (int i = 0; i < kTokens; ++i) tokens.push_back((i * 37 + 11) % 70);
  return tokens;
}

struct Way {
  int64_t call = 1;  // tokens per step, after the prompt
  int64_t row_block = 512;
};

// Logits of the tokens after the prompt. after_layer unrotates the keys, so that the cap applies
// after the prompt.
Result<std::vector<float>> LogitsUnder(const Model& model, kernels::Backend& backend, int64_t cap,
                                       Way way) {
  const auto cache =
      Cache::Make(backend,
                  {.shape = model.cache_shape(),
                   .key_type = kernels::TensorType::kF32,
                   .value_type = kernels::TensorType::kF32,
                   .capacity = 100,
                   .storage = {.positions = cache::PositionMode::kCapped, .distance_cap = cap}})
          .value();
  Step step(model);
  std::vector<float> all;
  const std::vector<int32_t> tokens = Tokens();
  for (int64_t first = 0, n = kPrompt; first < kTokens; first += n, n = way.call) {
    n = std::min(n, kTokens - first);
    const TokenSpan span = {
        .sequence = {.cache = cache.get(),
                     .after_layer = [&](const attention::LayerDone& done) -> Result<void> {
                       cache->Unrotate(done.layer, done.rope);
                       return {};
                     }},
        .tokens = std::span(tokens).subspan(static_cast<size_t>(first), static_cast<size_t>(n)),
        .first_position = static_cast<cache::Position>(first),
        .on_logits = [&](int64_t, std::span<const float> logits) {
          if (first > 0) all.insert(all.end(), logits.begin(), logits.end());
        }};
    WINNOW_TRY(step.RunAll({&span, 1}, way.row_block));
  }
  return all;
}

class CappedDistances : public ::testing::Test {
 protected:
  std::unique_ptr<Model> Load(int context) {
    testing::TinySpec spec = testing::MakeTinySpec("llama");
    spec.context = context;
    NullLog log;
    return Model::Load(testing::TinyModel(spec), *backend_, {}, log).value();
  }

  std::unique_ptr<kernels::Backend> backend_ = kernels::MakeReferenceBackend();
};

// Each query of a call measures distances from its own position, not from that of the first query.
TEST_F(CappedDistances, DoNotDependOnTheCall) {
  const auto model = Load(128);
  for (const int64_t cap : {1, 5, 12, 30, 38, 39, 127}) {
    const std::vector<float> expected = LogitsUnder(*model, *backend_, cap, {}).value();
    for (const Way way : {Way{.call = 32}, Way{.call = 9}, Way{.call = 32, .row_block = 5}}) {
      const std::vector<float> found = LogitsUnder(*model, *backend_, cap, way).value();
      ASSERT_EQ(found.size(), expected.size());
      for (size_t i = 0; i < found.size(); ++i) {
        ASSERT_NEAR(found[i], expected[i], 1e-4) << "cap " << cap << ", logit " << i;
      }
    }
  }
}

// A query is rotated to the cap at most, which may equal the trained context.
TEST_F(CappedDistances, MayBeTheTrainedContext) {
  const auto model = Load(30);
  for (const Way way : {Way{.call = 1}, Way{.call = 7}}) {
    const auto found = LogitsUnder(*model, *backend_, 30, way);
    ASSERT_TRUE(found.has_value()) << found.error().message;
    for (const float logit : *found) ASSERT_TRUE(std::isfinite(logit));
  }
  const auto refused = LogitsUnder(*model, *backend_, 31, {});
  ASSERT_FALSE(refused.has_value());
  EXPECT_EQ(refused.error().message, "model: position 31 is beyond the context of 30 tokens");
}

}  // namespace
}  // namespace winnow::model
