#include "tokenizer/pre_tokenizer.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

namespace winnow::tokenizer {
namespace {

// The pieces, separated by bars.
std::string Split(std::string_view name, std::string_view text) {
  const Result<PreTokenizer> pre_tokenizer = PreTokenizer::Make(name);
  if (!pre_tokenizer) return pre_tokenizer.error().message;
  std::string shown;
  for (std::string_view piece : pre_tokenizer->Split(text)) {
    if (!shown.empty()) shown += '|';
    shown += piece;
  }
  return shown;
}

TEST(PreTokenizer, Llama3) {
  EXPECT_EQ(Split("llama-bpe", "Hello world's 12345!\n\n  x"),
            "Hello| world|'s| |123|45|!\n\n| | x");
  EXPECT_EQ(Split("llama-bpe", "I'LL\twe'd_go"), "I|'LL|\twe|'d|_go");
  EXPECT_EQ(Split("llama-bpe", "a   b \n c  "), "a|  | b| \n| c|  ");
}

TEST(PreTokenizer, Qwen2CutsDigitsApart) {
  EXPECT_EQ(Split("qwen2", "in 2024"), "in| |2|0|2|4");
  EXPECT_EQ(Split("dbrx", "in 2024"), "in| |202|4");
}

TEST(PreTokenizer, Qwen35KeepsMarksWithTheirLetters) {
  EXPECT_EQ(Split("qwen2", "e\u0301a"), "e|\u0301a");
  EXPECT_EQ(Split("qwen35", "e\u0301a"), "e\u0301a");
}

TEST(PreTokenizer, Gpt2) {
  EXPECT_EQ(Split("gpt-2", "don't DON'T 12345 x!?"), "don|'t| DON|'|T| 12345| x|!?");
  EXPECT_EQ(Split("gpt-2", "a   b\t\tc  "), "a|  | b|\t|\t|c|  ");
}

TEST(PreTokenizer, SmolLmCutsDigitsFirst) {
  EXPECT_EQ(Split("smollm", "a 12"), "a| |1|2");
  EXPECT_EQ(Split("starcoder", " 1x"), " |1|x");
}

TEST(PreTokenizer, FalconCutsPunctuationFirstAndDigitsInThrees) {
  EXPECT_EQ(Split("falcon", "a `b` 12345"), "a| |`|b|`| |123|45");
  EXPECT_EQ(Split("falcon", "don't"), "don|'|t");
}

TEST(PreTokenizer, DefaultTreatsNumbersApart) {
  EXPECT_EQ(Split("default", "x 12345, y"), "x| |123|45|,| y");
  EXPECT_EQ(Split("default", "`"), "`");
}

TEST(PreTokenizer, TekkenCutsAtCapitals) {
  EXPECT_EQ(Split("tekken", "helloWorld HTTPServer 12"), "hello|World| HTTPServer| |1|2");
  EXPECT_EQ(Split("tekken", "and/or //\n"), "and|/or| //\n");
}

TEST(PreTokenizer, Gpt4oKeepsContractionsWithTheirWords) {
  EXPECT_EQ(Split("gpt-4o", "we'll DON'T 1234"), "we'll| DON'T| |123|4");
}

TEST(PreTokenizer, DeepseekV3CutsNumbersAndHanFirst) {
  EXPECT_EQ(Split("deepseek-v3", "a1234中文b.foo .bar"), "a|123|4|中文|b|.foo| .|bar");
}

TEST(PreTokenizer, SpaceIsUnicodeWhiteSpace) {
  // U+0085, U+3000 and U+2028 are white space. U+180E is no longer, U+200B never was.
  EXPECT_EQ(Split("llama-bpe", "!\u0085\u3000\u2028!"), "!|\u0085\u3000|\u2028|!");
  EXPECT_EQ(Split("llama-bpe", "!\u180E!"), "!\u180E!");
  EXPECT_EQ(Split("llama-bpe", "!\u200B!"), "!\u200B!");
}

TEST(PreTokenizer, BytesThatAreNotUtf8ArePiecesOfTheirOwn) {
  EXPECT_EQ(Split("qwen2", "ab\xFF\xFE cd\xC3"), "ab|\xFF\xFE| cd|\xC3");
}

TEST(PreTokenizer, UnknownNamesAreRefusedWithTheKnownOnes) {
  const std::string message = Split("klingon", "");
  EXPECT_NE(message.find("'klingon' unknown"), std::string::npos) << message;
  EXPECT_NE(message.find("llama-bpe, llama3"), std::string::npos) << message;
  EXPECT_NE(message.find("deepseek-v3"), std::string::npos) << message;
}

std::vector<std::string> AllNames() {
  std::vector<std::string> names;
  const std::string joined = PreTokenizerNames();
  for (size_t at = 0; at < joined.size();) {
    const size_t end = std::min(joined.find(", ", at), joined.size());
    names.push_back(joined.substr(at, end - at));
    at = end + 2;
  }
  return names;
}

TEST(PreTokenizer, EveryNameLosesNothing) {
  const std::string text =
      "It's 1st, 'RE 12345 x\u0301yz  \r\n\t\tA中文カナ \U0001F680~`$^ \xFF\xC3 ÄÖ ꙮ _a-b//c  ";
  ASSERT_EQ(AllNames().size(), 37u);
  for (const std::string& name : AllNames()) {
    const Result<PreTokenizer> pre_tokenizer = PreTokenizer::Make(name);
    ASSERT_TRUE(pre_tokenizer) << name;
    std::string joined;
    for (std::string_view piece : pre_tokenizer->Split(text)) {
      EXPECT_FALSE(piece.empty()) << name;
      joined += piece;
    }
    EXPECT_EQ(joined, text) << name;
  }
}

TEST(PreTokenizer, LongRunsOfOneKindDoNotExplode) {
  const size_t n = 1000000;
  std::string mixed;
  for (size_t i = 0; i < n / 2; ++i) mixed += " \n";
  for (const char* name :
       {"llama-bpe", "qwen35", "gpt-2", "falcon", "default", "tekken", "gpt-4o", "deepseek-v3"}) {
    const Result<PreTokenizer> pre_tokenizer = PreTokenizer::Make(name);
    for (const std::string& text :
         {std::string(n, 'a'), std::string(n, 'A'), std::string(n, ' ') + "x", std::string(n, '\n'),
          std::string(n, '1'), std::string(n, '!'), mixed + "x"}) {
      size_t total = 0;
      for (std::string_view piece : pre_tokenizer->Split(text)) total += piece.size();
      EXPECT_EQ(total, text.size()) << name << ' ' << text[0];
    }
  }
}

}  // namespace
}  // namespace winnow::tokenizer
