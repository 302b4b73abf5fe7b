// Perplexity of real models in the folder beside the repository; skipped if they are absent.
//
// The definition of llama.cpp's perplexity tool, verified by recomputing its figures (perplexity.py
// does, to the last digit): the whole text is tokenised once, with BOS first, and cut into windows
// of c tokens; the rest is dropped. The first token of each window is REPLACED by BOS, and the
// window computed from an empty cache. The predictions made at positions c/2 .. c-2 are scored:
// c - 1 - c/2 per window (127 of 256). The stories are 393 windows with 49911 scored tokens.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "base/statistics.h"
#include "eval/run/text_windows.h"
#include "winnow/winnow.h"

namespace winnow::oracle {
namespace {

struct Figure {
  std::string model;  // below shared/data
  std::string text;   // the same
  int64_t window = 0;
  int64_t max_windows = -1;
  int64_t n_scored = 0;
  double perplexity = 0;
  CacheType cache_type = CacheType::kF32;
};

void PrintTo(const Figure& figure, std::ostream* out) { *out << figure.model; }

class RealPerplexity : public ::testing::TestWithParam<Figure> {};

TEST_P(RealPerplexity, MatchesLlamaCpp) {
  const Figure& figure = GetParam();
  const std::filesystem::path data = "../shared/data";
  if (!std::filesystem::exists(data / figure.model) ||
      !std::filesystem::exists(data / figure.text)) {
    GTEST_SKIP() << "skipped: " << data / figure.model << " or its text is absent";
  }
  std::ifstream in(data / figure.text, std::ios::binary);
  const std::string text(std::istreambuf_iterator<char>(in), {});

  const auto model = Model::Open((data / figure.model).string(), {.threads = 2});
  ASSERT_TRUE(model.has_value()) << model.error().message;
  const Token bos = model->Tokenize(std::span<const MarkedText>()).at(0);
  const auto windows =
      eval::CutWindows(model->Tokenize(text), figure.window, figure.max_windows, bos);
  ASSERT_TRUE(windows.has_value()) << windows.error().message;

  auto session = model->NewSession(
      {.context = figure.window, .keys = figure.cache_type, .values = figure.cache_type});
  ASSERT_TRUE(session.has_value()) << session.error().message;
  MeanEstimate nll;
  for (int64_t window = 0; window < windows->n_windows; ++window) {
    session->Truncate(0);
    const int64_t first = windows->first_scored();
    const auto scores = session->Score(windows->Tokens(window), {.first = first});
    ASSERT_TRUE(scores.has_value()) << scores.error().message;
    for (const double score : std::span(*scores).subspan(static_cast<size_t>(first))) {
      nll.Add(-score);
    }
  }
  EXPECT_EQ(nll.count(), figure.n_scored);
  EXPECT_NEAR(Perplexity(nll), figure.perplexity, 5e-4 * figure.perplexity);
}

constexpr char kStories[] = "tinystories/tinystories_sample.txt";

INSTANTIATE_TEST_SUITE_P(
    Models, RealPerplexity,
    ::testing::Values(
        Figure{"models/stories260K/stories260K-f32.gguf", kStories, 256, -1, 49911, 6.0481},
        Figure{"models/tiny1m/tiny1m-f32.gguf", kStories, 256, -1, 49911, 4.3111},
        Figure{"models/tiny1m/tiny1m-f32.gguf", kStories, 256, -1, 49911, 4.3114, CacheType::kF16},
        Figure{"models/recall-probe/recall-probe-f16.gguf", "models/recall-probe/heldout.txt", 1024,
               40, 20440, 30.3316, CacheType::kF16}),
    [](const auto& param) {
      std::string name = std::filesystem::path(param.param.model).stem().string() + "_" +
                         (param.param.cache_type == CacheType::kF16 ? "f16" : "f32");
      for (char& letter : name) letter = letter == '-' ? '_' : letter;
      return name;
    });

}  // namespace
}  // namespace winnow::oracle
