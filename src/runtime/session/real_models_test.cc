// Greedy text of real models, if they lie beside the repository, compared with that of another
// implementation.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "base/log.h"
#include "runtime/engine.h"
#include "runtime/session/session.h"

namespace winnow::runtime {
namespace {

std::filesystem::path ModelFolder(const std::string& name) {
  return std::filesystem::path("../shared/data/models") / name;
}

// model, target, cache type
class GreedyText
    : public ::testing::TestWithParam<std::tuple<std::string, std::string, kernels::TensorType>> {};

TEST_P(GreedyText, IsTheReferenceText) {
  const auto& [name, target, cache_type] = GetParam();
  const std::filesystem::path folder = ModelFolder(name);
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << "skipped: " << folder << " is absent";
  std::ifstream in(folder / "greedy_256_once_upon_a_time.txt", std::ios::binary);
  const std::string expected(std::istreambuf_iterator<char>(in), {});
  ASSERT_FALSE(expected.empty());

  NullLog log;
  auto opened = Engine::Open(
      {.model_path = (folder / (name + "-f32.gguf")).string(), .n_threads = 2, .target = target},
      log);
  ASSERT_TRUE(opened.has_value()) << opened.error().message;
  Engine& engine = **opened;
  const auto session =
      Session::Make(engine, {.key_type = cache_type, .value_type = cache_type}).value();
  const tokenizer::Tokenizer& tokenizer = engine.tokenizer();
  std::vector<TokenId> tokens = tokenizer.Encode("Once upon a time");
  ASSERT_TRUE(session->Prefill(tokens).value());
  while (session->n_tokens() < 255) {
    const auto logits = session->logits();
    const auto best = std::max_element(logits.begin(), logits.end());
    const TokenId token = static_cast<TokenId>(best - logits.begin());
    if (tokenizer.IsEndOfGeneration(token)) break;
    tokens.push_back(token);
    ASSERT_TRUE(session->Decode(token).has_value());
  }
  const std::string text = tokenizer.Decode(tokens);
  // The reference prints at most 256 steps, and stops in the middle of a word.
  EXPECT_EQ(expected.substr(0, std::min(text.size(), expected.size())), text);
  EXPECT_GT(text.size() + 40, std::min<size_t>(expected.size(), 500));
}

INSTANTIATE_TEST_SUITE_P(
    Models, GreedyText,
    ::testing::Combine(::testing::Values("stories260K", "tiny1m"),
                       ::testing::Values("", "reference"),
                       ::testing::Values(kernels::TensorType::kF16, kernels::TensorType::kF32)),
    [](const auto& param_info) {
      const std::string& target = std::get<1>(param_info.param);
      return std::get<0>(param_info.param) + (target.empty() ? "_cpu_" : "_reference_") +
             std::string(gguf::GetTypeInfo(std::get<2>(param_info.param)).name);
    });

}  // namespace
}  // namespace winnow::runtime
