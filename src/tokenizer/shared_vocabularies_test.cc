// Six real vocabularies: expected tokens, round trips, long inputs.
#include <gtest/gtest.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <random>
#include <sstream>
#include <string>
#include <thread>

#include "tokenizer/testing/small_vocabulary.h"
#include "tokenizer/tokenizer.h"
#include "tokenizer/utf8.h"

namespace winnow::tokenizer {
namespace {

using testing::kPlain;
constexpr std::string_view kSpace = "▁";

std::string ReadFile(const std::filesystem::path& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}

class SharedVocabulary : public ::testing::TestWithParam<const char*> {
 protected:
  void SetUp() override {
    path_ = std::filesystem::path("../shared/data/tokenizers") /
            ("ggml-vocab-" + std::string(GetParam()) + ".gguf");
    if (!std::filesystem::exists(path_)) GTEST_SKIP() << "skipped: no " << path_;
    auto file = gguf::File::Open(path_.string());
    ASSERT_TRUE(file) << file.error().message;
    auto tokenizer = Tokenizer::Load(std::move(file).value());
    ASSERT_TRUE(tokenizer) << tokenizer.error().message;
    tokenizer_ = std::move(tokenizer).value();
  }

  bool is_falcon() const { return std::string_view(GetParam()) == "falcon"; }

  void ExpectRoundTrip(const std::string& text) const {
    ASSERT_EQ(tokenizer_->Decode(tokenizer_->Encode(text, kPlain)), text)
        << ::testing::PrintToString(text);
  }

  std::filesystem::path path_;
  std::unique_ptr<Tokenizer> tokenizer_;
};

TEST_P(SharedVocabulary, GivesTheExpectedTokens) {
  const std::string texts = ReadFile(path_.string() + ".inp");
  std::istringstream expected_lines(ReadFile(path_.string() + ".out"));
  const std::string separator = "\n__ggml_vocab_test__\n";
  int n_texts = 0;
  for (size_t at = 0; at < texts.size(); ++n_texts) {
    const size_t end = std::min(texts.find(separator, at), texts.size());
    const std::string text = texts.substr(at, end - at);
    at = end + separator.size();
    std::string line;
    ASSERT_TRUE(std::getline(expected_lines, line));
    std::istringstream ids(line);
    const std::vector<TokenId> expected{std::istream_iterator<TokenId>(ids), {}};
    EXPECT_EQ(tokenizer_->Encode(text, kPlain), expected) << text;
    ExpectRoundTrip(text);
  }
  EXPECT_EQ(n_texts, 46);
}

TEST_P(SharedVocabulary, HasNothingToWarnOf) {
  EXPECT_EQ(tokenizer_->warnings(), std::vector<std::string>{});
}

TEST_P(SharedVocabulary, RandomUnicodeComesBack) {
  std::mt19937 random(1);
  const auto below = [&random](uint32_t n) { return static_cast<uint32_t>(random() % n); };
  for (int round = 0; round < 2000; ++round) {
    std::string text;
    const uint32_t n = below(40);
    for (uint32_t i = 0; i < n; ++i) {
      // Characters of all planes, with Latin and spaces more frequent, as in text.
      const uint32_t kind = below(4);
      uint32_t code = kind == 0   ? ' ' + below(95)
                      : kind == 1 ? below(0x300)
                                  : below(kind == 2 ? 0x10000 : 0x110000);
      if (code >= 0xD800 && code < 0xE000) code = ' ';
      // Falcon's vocabulary lacks control characters and the unassigned planes.
      if (is_falcon() && (code < ' ' || code == 0x7F || code >= 0x40000)) code = '\n';
      if (code < 0x80) {
        text += static_cast<char>(code);
      } else {
        const int n_more = code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
        text += static_cast<char>((0xFF00 >> (n_more + 1) & 0xFF) | code >> 6 * n_more);
        for (int k = n_more - 1; k >= 0; --k)
          text += static_cast<char>(0x80 | (code >> 6 * k & 0x3F));
      }
    }
    ASSERT_TRUE(IsUtf8(text));
    // SentencePiece-style vocabularies write a space as U+2581 and cannot tell the two apart.
    if (text.find(kSpace) == std::string::npos) ExpectRoundTrip(text);
  }
}

TEST_P(SharedVocabulary, RandomBytesComeBack) {
  if (is_falcon()) GTEST_SKIP() << "skipped: the vocabulary has no tokens for some bytes";
  std::mt19937 random(2);
  for (int round = 0; round < 500; ++round) {
    std::string bytes;
    for (uint32_t n = random() % 200; n > 0; --n) bytes += static_cast<char>(random());
    if (bytes.find(kSpace) == std::string::npos) ExpectRoundTrip(bytes);
  }
}

TEST_P(SharedVocabulary, LongRunsTakeNoMoreThanLinearithmicTime) {
  // A quadratic algorithm would take minutes here.
  const size_t n = 500000;
  for (const char* unit : {"a", " ", "\n", "A", "中", "<|", "a ", " \n"}) {
    std::string text;
    while (text.size() < n) text += unit;
    ExpectRoundTrip(text);
  }
}

TEST_P(SharedVocabulary, ThreadsMayShareIt) {
  const std::string text = "The quick brown fox jumps over 12345 lazy dogs.\n";
  const std::vector<TokenId> expected = tokenizer_->Encode(text, kPlain);
  std::vector<std::thread> threads;
  std::vector<int> n_wrong(4, 0);
  for (int& wrong : n_wrong) {
    threads.emplace_back([&] {
      for (int i = 0; i < 200; ++i) wrong += tokenizer_->Encode(text, kPlain) != expected;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(n_wrong, std::vector<int>(4, 0));
}

INSTANTIATE_TEST_SUITE_P(All, SharedVocabulary,
                         ::testing::Values("llama-spm", "phi-3", "llama-bpe", "qwen2", "falcon",
                                           "gpt-2"),
                         [](const auto& vocabulary) {
                           std::string name = vocabulary.param;
                           std::replace(name.begin(), name.end(), '-', '_');
                           return name;
                         });

}  // namespace
}  // namespace winnow::tokenizer
