#include "eval/run/token_stream.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <memory>

#include "base/rng.h"
#include "tokenizer/testing/small_vocabulary.h"

namespace winnow::eval {
namespace {

using tokenizer::TokenId;

// Gives a text in pieces of `n` bytes.
std::function<Result<std::string>()> InPieces(const std::string& text, size_t n) {
  return [text, n, at = size_t{0}]() mutable -> Result<std::string> {
    const std::string piece = text.substr(std::min(at, text.size()), n);
    at += n;
    return piece;
  };
}

std::string SomeText(uint64_t seed) {
  constexpr const char* kWords[] = {"hello", " hello", " hell",   "he",   "ll",
                                    " ",     "\n",     "\n\n",    "o",    " \xC3\xA4",
                                    ".",     "  ",     "hehello", "\xFF", "ello "};
  Rng rng(seed);
  std::string text;
  while (text.size() < 2000) text += kWords[rng.Below(std::size(kWords))];
  return text;
}

TEST(TokenStream, GivesTheTokensOfTheWholeText) {
  const std::unique_ptr<tokenizer::Tokenizer> tokenizers[] = {
      tokenizer::testing::Make(tokenizer::testing::SmallSentencePiece()),
      tokenizer::testing::Make(tokenizer::testing::SmallBytePairs())};
  for (const auto& tokenizer : tokenizers) {
    for (uint64_t seed = 0; seed < 20; ++seed) {
      const std::string text = SomeText(seed);
      TokenStream stream(*tokenizer, InPieces(text, 37), {.block = 100, .overlap = 40});
      std::vector<TokenId> tokens;
      int n_blocks = 0;
      for (;; ++n_blocks) {
        const auto more = stream.Next(tokens);
        ASSERT_TRUE(more);
        if (!*more) break;
      }
      EXPECT_GT(n_blocks, 10);
      EXPECT_EQ(tokens, tokenizer->Encode(text)) << tokenizer->model_name() << " " << seed;
    }
  }
}

TEST(TokenStream, ShortTexts) {
  const auto tokenizer = tokenizer::testing::Make(tokenizer::testing::SmallSentencePiece());
  for (const std::string text : {"", "h", "hello hello"}) {
    TokenStream stream(*tokenizer, InPieces(text, 4));
    std::vector<TokenId> tokens;
    for (;;) {
      const auto more = stream.Next(tokens);
      ASSERT_TRUE(more);
      if (!*more) break;
    }
    EXPECT_EQ(tokens, tokenizer->Encode(text));
  }
}

TEST(TokenStream, ErrorsOfTheSource) {
  const auto tokenizer = tokenizer::testing::Make(tokenizer::testing::SmallBytePairs());
  TokenStream stream(*tokenizer, []() -> Result<std::string> { return Error{"no disk"}; });
  std::vector<TokenId> tokens;
  EXPECT_FALSE(stream.Next(tokens));
}

}  // namespace
}  // namespace winnow::eval
