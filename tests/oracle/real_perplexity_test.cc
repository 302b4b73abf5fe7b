// Perplexity of the real models beside the repository, where they are.
//
// What llama.cpp's perplexity tool computes, found by recomputing its figures (perplexity.py does,
// to the last digit): the whole text is tokenised once, with BOS first; cut into windows of c
// tokens, the rest dropped; the first token of each window is REPLACED by BOS and the window
// computed from an empty cache; the tokens predicted at positions c/2 .. c-2 of each window are
// scored, so c - 1 - c/2 per window (127 of 256). For the first two that is 393 windows and 49911
// scored tokens.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "base/log.h"
#include "eval/run/perplexity.h"
#include "runtime/engine.h"
#include "runtime/session.h"

namespace winnow::oracle {
namespace {

struct Figure {
  std::string model;  // below shared/data
  std::string text;   // the same
  int64_t window = 0;
  int64_t max_windows = -1;
  int64_t n_scored = 0;
  double perplexity = 0;
  kernels::TensorType cache_type = kernels::TensorType::kF32;
};

void PrintTo(const Figure& figure, std::ostream* out) { *out << figure.model; }

class RealPerplexity : public ::testing::TestWithParam<Figure> {};

TEST_P(RealPerplexity, IsLlamaCpps) {
  const Figure& figure = GetParam();
  const std::filesystem::path data = "../shared/data";
  if (!std::filesystem::exists(data / figure.model) ||
      !std::filesystem::exists(data / figure.text)) {
    GTEST_SKIP() << "skipped: " << data / figure.model << " or its text is absent";
  }
  std::ifstream in(data / figure.text, std::ios::binary);
  const std::string text(std::istreambuf_iterator<char>(in), {});

  NullLog log;
  auto engine =
      runtime::Engine::Open({.model_path = (data / figure.model).string(), .n_threads = 2}, log);
  ASSERT_TRUE(engine.has_value()) << engine.error().message;
  const tokenizer::Tokenizer& tokenizer = (*engine)->tokenizer();
  const auto windows =
      eval::CutWindows(tokenizer.Encode(text), figure.window, figure.max_windows, tokenizer);
  ASSERT_TRUE(windows.has_value()) << windows.error().message;
  EXPECT_EQ(windows->n_windows * windows->n_scored(), figure.n_scored);

  const auto session = runtime::Session::Make(
      **engine,
      {.context = figure.window, .key_type = figure.cache_type, .value_type = figure.cache_type});
  ASSERT_TRUE(session.has_value()) << session.error().message;
  const auto estimate = eval::MeasurePerplexity(**session, *windows, {});
  ASSERT_TRUE(estimate.has_value()) << estimate.error().message;
  EXPECT_EQ(estimate->nll.count(), figure.n_scored);
  EXPECT_NEAR(estimate->perplexity(), figure.perplexity, 5e-4 * figure.perplexity);
}

constexpr char kStories[] = "tinystories/tinystories_sample.txt";

INSTANTIATE_TEST_SUITE_P(Models, RealPerplexity,
                         ::testing::Values(Figure{"models/stories260K/stories260K-f32.gguf",
                                                  kStories, 256, -1, 49911, 6.0481},
                                           Figure{"models/tiny1m/tiny1m-f32.gguf", kStories, 256,
                                                  -1, 49911, 4.3111},
                                           Figure{"models/tiny1m/tiny1m-f32.gguf", kStories, 256,
                                                  -1, 49911, 4.3114, kernels::TensorType::kF16},
                                           Figure{"models/recall-probe/recall-probe-f16.gguf",
                                                  "models/recall-probe/heldout.txt", 1024, 40,
                                                  20440, 30.3316, kernels::TensorType::kF16}),
                         [](const auto& param) {
                           std::string name =
                               std::filesystem::path(param.param.model).stem().string() + "_" +
                               std::string(gguf::GetTypeInfo(param.param.cache_type).name);
                           for (char& letter : name) letter = letter == '-' ? '_' : letter;
                           return name;
                         });

}  // namespace
}  // namespace winnow::oracle
