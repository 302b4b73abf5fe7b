#include <gtest/gtest.h>

#include <algorithm>

#include <limits>
#include <string>

#include "tokenizer/merge.h"
#include "tokenizer/testing/small_vocabulary.h"

namespace winnow::tokenizer {
namespace {

using testing::Make;
using testing::SmallSentencePiece;
using Ids = std::vector<TokenId>;

using testing::kPlain;
using testing::kSpecial;

TokenId Byte(uint8_t byte) { return 3 + byte; }

TEST(SentencePiece, MergesByScore) {
  const auto tokenizer = Make(SmallSentencePiece());
  EXPECT_EQ(tokenizer->Encode("hello", kPlain), (Ids{268}));
  EXPECT_EQ(tokenizer->Encode("hell", kPlain), (Ids{259, 266}));
  EXPECT_EQ(tokenizer->Encode("hel", kPlain), (Ids{259, 264, 262}));
  EXPECT_EQ(tokenizer->Encode("hello hello", kPlain), (Ids{268, 268}));
  EXPECT_EQ(tokenizer->Encode("  hello", kPlain), (Ids{259, 259, 268}));
  EXPECT_EQ(tokenizer->Encode("", kPlain), Ids{});
}

TEST(SentencePiece, OfEqualScoresTheLeftmostPairGoesFirst) {
  testing::VocabularyBuilder builder("llama");
  builder.Token("<unk>", TokenKind::kUnknown)
      .Token("a")
      .Token("aa", TokenKind::kNormal, 1)
      .Token("▁");
  Vocabulary vocabulary = builder.Build();
  vocabulary.add_space_prefix = false;
  EXPECT_EQ(Make(vocabulary)->Encode("aaaaa", kPlain), (Ids{2, 2, 1}));
}

TEST(SentencePiece, ScoresBecomePrioritiesInOrder) {
  const float infinity = std::numeric_limits<float>::infinity();
  const float descending[] = {infinity, 3e38f, 1, 1e-40f, 0, -1e-40f, -1, -3e38f, -infinity};
  for (size_t i = 1; i < std::size(descending); ++i) {
    EXPECT_LT(PriorityOfScore(descending[i - 1]), PriorityOfScore(descending[i])) << descending[i];
  }
  EXPECT_EQ(PriorityOfScore(0.0f), PriorityOfScore(-0.0f));
}

TEST(SentencePiece, WhatIsNoTokenBecomesBytes) {
  const auto tokenizer = Make(SmallSentencePiece());
  EXPECT_EQ(tokenizer->Encode("中", kPlain), (Ids{259, Byte(0xE4), Byte(0xB8), Byte(0xAD)}));
  EXPECT_EQ(tokenizer->Encode("h\xFFh", kPlain), (Ids{259, 260, Byte(0xFF), 260}));
  EXPECT_EQ(tokenizer->Encode("ä", kPlain), (Ids{259, 271}));
  EXPECT_EQ(tokenizer->Encode(std::string_view("\0", 1), kPlain), (Ids{259, Byte(0)}));
}

TEST(SentencePiece, WithoutByteTokensTheUnknownTokenStandsIn) {
  testing::VocabularyBuilder builder("llama");
  builder.Token("<unk>", TokenKind::kUnknown).Token("▁").Token("a");
  const auto tokenizer = Make(builder.Build());
  EXPECT_EQ(tokenizer->Encode("aba", kPlain), (Ids{1, 2, 0, 2}));
  ASSERT_EQ(tokenizer->warnings().size(), 1u);
  EXPECT_NE(tokenizer->warnings()[0].find("0 byte tokens, expected 256"), std::string::npos);
}

TEST(SentencePiece, SpacePrefixCanBeTurnedOff) {
  Vocabulary vocabulary = SmallSentencePiece();
  vocabulary.add_space_prefix = false;
  const auto tokenizer = Make(vocabulary);
  EXPECT_EQ(tokenizer->Encode("hello", kPlain), (Ids{267}));
  EXPECT_EQ(tokenizer->Encode(" hello", kPlain), (Ids{268}));
  EXPECT_EQ(tokenizer->Decode(Ids{268}), " hello");
}

TEST(SentencePiece, ASpaceIsPutBehindEverySpecialToken) {
  const auto tokenizer = Make(SmallSentencePiece());
  EXPECT_EQ(tokenizer->Encode("hello<|user|>hello\n\nhello", kSpecial),
            (Ids{268, 269, 268, 270, 268}));
  EXPECT_EQ(tokenizer->Encode("<|user|><|user|>", kSpecial), (Ids{269, 269}));
  // Decode removes them again.
  EXPECT_EQ(tokenizer->Decode(Ids{268, 269, 268, 270, 268}, true), "hello<|user|>hello\n\nhello");
  EXPECT_EQ(tokenizer->Decode(Ids{1, 268, 268}), "hello hello");
}

TEST(SentencePiece, OnlyUserDefinedTokensAreFoundInPlainText) {
  const auto tokenizer = Make(SmallSentencePiece());
  const Ids plain = tokenizer->Encode("<|user|>\n\n</s>", kPlain);
  EXPECT_EQ(std::count(plain.begin(), plain.end(), 269), 0);
  EXPECT_EQ(std::count(plain.begin(), plain.end(), 2), 0);
  EXPECT_EQ(std::count(plain.begin(), plain.end(), 270), 1);
  EXPECT_EQ(tokenizer->Encode("<|user|>\n\n</s>", kSpecial), (Ids{269, 270, 2}));
}

TEST(SentencePiece, TextNeverMergesIntoAControlToken) {
  testing::VocabularyBuilder builder("llama");
  builder.Token("<unk>", TokenKind::kUnknown).Token("a").Token("b").Token("▁");
  builder.Token("ab", TokenKind::kControl, 5);
  Vocabulary vocabulary = builder.Build();
  vocabulary.add_space_prefix = false;
  EXPECT_EQ(Make(vocabulary)->Encode("ab", kPlain), (Ids{1, 2}));
  EXPECT_EQ(Make(vocabulary)->Encode("ab", kSpecial), (Ids{4}));
}

TEST(SentencePiece, TokensMayReachAcrossSpaces) {
  // The token "a b" spans words, so words must not be encoded one by one.
  testing::VocabularyBuilder builder("llama");
  builder.Token("<unk>", TokenKind::kUnknown).Token("▁").Token("a").Token("b");
  builder.Token("▁b", TokenKind::kNormal, 1).Token("a▁b", TokenKind::kNormal, 2);
  const auto tokenizer = Make(builder.Build());
  EXPECT_EQ(tokenizer->Encode("a b", kPlain), (Ids{1, 5}));
  EXPECT_EQ(tokenizer->Encode("b b", kPlain), (Ids{4, 4}));
}

TEST(SentencePiece, DefaultsOfSpecialTokens) {
  const auto tokenizer = Make(SmallSentencePiece());
  EXPECT_EQ(tokenizer->bos(), 1);
  EXPECT_EQ(tokenizer->eos(), 2);
  EXPECT_TRUE(tokenizer->adds_bos());
  EXPECT_FALSE(tokenizer->adds_eos());
  EXPECT_EQ(tokenizer->model_name(), "llama");
  EXPECT_EQ(tokenizer->pre_tokenizer_name(), "");
  EXPECT_EQ(tokenizer->Encode("hello"), (Ids{1, 268}));
  Vocabulary vocabulary = SmallSentencePiece();
  vocabulary.add_bos = false;
  vocabulary.add_eos = true;
  EXPECT_EQ(Make(vocabulary)->Encode("hello"), (Ids{268, 2}));
}

TEST(SentencePiece, AMissingScoreListIsWarnedOf) {
  Vocabulary vocabulary = SmallSentencePiece();
  vocabulary.scores.clear();
  const auto tokenizer = Make(vocabulary);
  ASSERT_EQ(tokenizer->warnings().size(), 1u);
  EXPECT_NE(tokenizer->warnings()[0].find("scores is missing"), std::string::npos);
}

TEST(SentencePiece, RepeatedWordsGetTheSameTokensAsTheFirst) {
  const auto tokenizer = Make(SmallSentencePiece());
  std::string text = "hello";
  Ids expected = {268};
  for (int i = 0; i < 5000; ++i) {
    text += i % 3 == 0 ? " hel" : i % 3 == 1 ? " hello" : " oh";
    if (i % 3 == 0) expected.insert(expected.end(), {259, 264, 262});
    if (i % 3 == 1) expected.insert(expected.end(), {268});
    if (i % 3 == 2) expected.insert(expected.end(), {259, 263, 260});
  }
  EXPECT_EQ(tokenizer->Encode(text, kPlain), expected);
}

}  // namespace
}  // namespace winnow::tokenizer
