// On a batch-invariant backend, a span gets the same bits alone and with any other spans, with any
// quota.
#include <gtest/gtest.h>

#include <memory>
#include <utility>
#include <vector>

#include "model/testing/loaded.h"

namespace winnow::model {
namespace {

using testing::Load;
using testing::Loaded;

constexpr int64_t kCapacity = 400;

// Results of a sequence's prompt and of the token after it.
struct Answer {
  std::vector<float> of_prompt = std::vector<float>(testing::kVocabulary);
  std::vector<float> of_token = std::vector<float>(testing::kVocabulary);
  std::vector<std::vector<std::vector<double>>> column_sums = {};  // [layer][list]
  bool operator==(const Answer&) const = default;
};

// Runs all prompts in one step, then a token of each sequence in another.
std::vector<Answer> AskAll(const Loaded& loaded, const std::vector<int>& lengths,
                           const Quota& quota) {
  std::vector<Answer> answers(lengths.size());
  std::vector<std::unique_ptr<cache::Cache>> caches;
  std::vector<std::vector<int32_t>> prompts;
  std::vector<TokenSpan> spans;
  for (size_t i = 0; i < lengths.size(); ++i) {
    prompts.push_back(testing::Tokens(lengths[i], lengths[i]));
    caches.push_back(loaded.NewCache(kCapacity, kernels::TensorType::kF16));
  }
  for (size_t i = 0; i < lengths.size(); ++i) {
    TokenSpan span = testing::MakeSpan(*caches[i], prompts[i]);
    span.last_logits = answers[i].of_prompt;
    span.sequence.taps = {.column_sums = true};
    span.sequence.after_layer = [&answer = answers[i]](const auto& done) -> Result<void> {
      answer.column_sums.push_back(done.taps.column_sums);
      return {};
    };
    spans.push_back(std::move(span));
  }
  EXPECT_TRUE(loaded.step->Begin(spans, 200).has_value());
  while (!loaded.step->Run(quota).value()) {
  }
  const int32_t token = 5;
  for (size_t i = 0; i < lengths.size(); ++i) {
    spans[i] = {.sequence = {.cache = caches[i].get()},
                .tokens = {&token, 1},
                .first_position = lengths[i],
                .last_logits = answers[i].of_token};
  }
  EXPECT_TRUE(loaded.step->RunAll(spans, 200).has_value());
  return answers;
}

TEST(StepInvariant, ASpanGetsTheSameBitsWithAnyOtherSpans) {
  const std::vector<int> lengths = {20, 300, 1, 150, 7, 128};
  for (const auto type : {kernels::TensorType::kF32, kernels::TensorType::kQ8_0}) {
    testing::TinySpec spec = testing::MakeTinySpec("llama");
    spec.context = 512;
    spec.type = type;
    const Loaded loaded = Load(spec, /*n_threads=*/3, /*batch_invariant=*/true);
    const std::vector<Answer> together = AskAll(loaded, lengths, {});
    EXPECT_EQ(AskAll(loaded, lengths, {.n_blocks = 1, .n_rows = 9}), together);
    for (size_t i = 0; i < lengths.size(); ++i) {
      EXPECT_EQ(AskAll(loaded, {lengths[i]}, {}).front(), together[i]) << lengths[i] << " tokens";
    }
    // On other backends the bits must differ, otherwise this test proves nothing.
    const Loaded plain = Load(spec, /*n_threads=*/3);
    const std::vector<Answer> in_company = AskAll(plain, lengths, {});
    bool differs = false;
    for (size_t i = 0; i < lengths.size(); ++i) {
      differs = differs || AskAll(plain, {lengths[i]}, {}).front() != in_company[i];
    }
    EXPECT_TRUE(differs);
  }
}

}  // namespace
}  // namespace winnow::model
