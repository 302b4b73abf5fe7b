#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include "gguf/testing/colliding_strings.h"
#include "tokenizer/byte_alphabet.h"
#include "tokenizer/testing/small_vocabulary.h"

namespace winnow::tokenizer {
namespace {

using testing::Make;
using testing::SmallBytePairs;
using Ids = std::vector<TokenId>;

using testing::kPlain;
using testing::kSpecial;

TEST(ByteAlphabet, KnownCharacters) {
  EXPECT_EQ(CharacterOfByte('A'), "A");
  EXPECT_EQ(CharacterOfByte(' '), "Ġ");
  EXPECT_EQ(CharacterOfByte('\n'), "Ċ");
  EXPECT_EQ(CharacterOfByte(0x00), "Ā");
  EXPECT_EQ(CharacterOfByte(0x7F), "ġ");
  EXPECT_EQ(CharacterOfByte(0xAD), "Ń");  // the last of the 68 bytes mapped to U+0100 and up
  EXPECT_EQ(CharacterOfByte(0xFF), "ÿ");
}

TEST(ByteAlphabet, EveryByteComesBack) {
  for (int byte = 0; byte < 256; ++byte) {
    EXPECT_EQ(BytesOfCharacters(CharacterOfByte(static_cast<uint8_t>(byte))),
              std::string(1, static_cast<char>(byte)));
  }
  EXPECT_EQ(BytesOfCharacters("ĠÄ中Ń"), " \xC4中\xAD");
}

TEST(BytePairs, MergesByRank) {
  const auto tokenizer = Make(SmallBytePairs());
  EXPECT_EQ(tokenizer->Encode("hello", kPlain), (Ids{259}));
  EXPECT_EQ(tokenizer->Encode("hello hello", kPlain), (Ids{259, 260}));
  EXPECT_EQ(tokenizer->Encode("hell", kPlain), (Ids{258}));
  EXPECT_EQ(tokenizer->Encode("helllo", kPlain), (Ids{258, 'l', 'o'}));
  EXPECT_EQ(tokenizer->Encode("", kPlain), Ids{});
}

TEST(BytePairs, TheFirstRankOfAPairCounts) {
  testing::VocabularyBuilder builder("gpt2");
  builder.Token("a").Token("b").Token("c").Token("ab").Token("bc");
  builder.Merge("b c").Merge("a b").Merge("b c");
  EXPECT_EQ(Make(builder.Build())->Encode("abc", kPlain), (Ids{0, 4}));
}

TEST(BytePairs, EveryByteIsEncodedValidOrNot) {
  const auto tokenizer = Make(SmallBytePairs());
  EXPECT_EQ(tokenizer->Encode("\xFF\xC3(", kPlain), (Ids{0xFF, 0xC3, '('}));
  EXPECT_EQ(tokenizer->Encode("ä", kPlain), (Ids{0xC3, 0xA4}));
}

TEST(BytePairs, MergesThatLeadToNoTokenFallBackToBytes) {
  testing::VocabularyBuilder builder("gpt2");
  builder.Token("a").Token("b").Token("c").Token("abc");
  builder.Merge("a b").Merge("ab c");
  const auto tokenizer = Make(builder.Build());
  EXPECT_EQ(tokenizer->Encode("ab", kPlain), (Ids{0, 1}));
  EXPECT_EQ(tokenizer->Encode("abc", kPlain), (Ids{3}));  // merged via "ab", which is no token
}

// Regression: symbols that are no tokens were found by std::hash, so a file could make reading its
// merges take quadratic time.
TEST(BytePairs, SymbolsMadeToCollideTakeNoLonger) {
  const auto seconds = [](const std::vector<std::string>& symbols) {
    testing::VocabularyBuilder builder("gpt2");
    builder.Token("a");
    for (const std::string& symbol : symbols) builder.Merge(symbol + " a");
    const Vocabulary vocabulary = builder.Build();
    return gguf::testing::ProcessorSeconds([&] { Make(vocabulary); });
  };
  constexpr size_t kSymbols = 20000;
  EXPECT_LT(seconds(gguf::testing::CollidingStrings(kSymbols)),
            10 * seconds(gguf::testing::OrdinaryStrings(kSymbols)) + 0.05);
}

TEST(BytePairs, BytesWithoutATokenAreLeftOutAndWarnedOf) {
  testing::VocabularyBuilder builder("gpt2");
  builder.Token("a").Token("b");
  Vocabulary vocabulary = builder.Build();
  vocabulary.pre = "gpt-2";
  const auto tokenizer = Make(vocabulary);
  EXPECT_EQ(tokenizer->Encode("axb", kPlain), (Ids{0, 1}));
  ASSERT_EQ(tokenizer->warnings().size(), 1u);
  EXPECT_NE(tokenizer->warnings()[0].find("lacks a token for"), std::string::npos);
  EXPECT_EQ(Make(SmallBytePairs())->warnings(), std::vector<std::string>{});
}

TEST(BytePairs, WholePiecesGoBeforeMergesWhereTheFamilySaysSo) {
  testing::VocabularyBuilder builder("gpt2");
  builder.Token("a").Token("b").Token("c").Token("ab").Token("abc");
  builder.Merge("a b");  // no merge gives abc
  Vocabulary vocabulary = builder.Build();
  vocabulary.pre = "llama-bpe";
  EXPECT_EQ(Make(vocabulary)->Encode("abc", kPlain), (Ids{4}));
  vocabulary.pre = "dbrx";  // the same expression without takes_whole_pieces
  EXPECT_EQ(Make(vocabulary)->Encode("abc", kPlain), (Ids{3, 2}));
}

TEST(BytePairs, TextNeverBecomesAControlToken) {
  testing::VocabularyBuilder builder("gpt2");
  builder.Token("a").Token("b").Token("ab", TokenKind::kControl);
  builder.Merge("a b");
  Vocabulary vocabulary = builder.Build();
  for (const char* pre : {"gpt-2", "llama-bpe"}) {
    vocabulary.pre = pre;
    EXPECT_EQ(Make(vocabulary)->Encode("ab", kPlain), (Ids{0, 1}));
    EXPECT_EQ(Make(vocabulary)->Encode("ab", kSpecial), (Ids{2}));
  }
}

TEST(BytePairs, SpecialTokens) {
  const auto tokenizer = Make(SmallBytePairs());
  EXPECT_EQ(tokenizer->Encode("hello<|end|>hello", kSpecial), (Ids{259, 261, 259}));
  EXPECT_EQ(tokenizer->Encode("<|end|><|end|><|end|>", kSpecial), (Ids{262, 261}));
  const Ids plain = tokenizer->Encode("<|end|><|end|><|end|>", kPlain);
  EXPECT_EQ(plain.front(), 262);
  EXPECT_EQ(std::count(plain.begin(), plain.end(), 261), 0);
}

TEST(BytePairs, BosGoesByFamilyUnlessTheFileSays) {
  Vocabulary vocabulary = SmallBytePairs();
  vocabulary.bos = 261;
  vocabulary.pre = "gpt-2";
  EXPECT_FALSE(Make(vocabulary)->adds_bos());
  vocabulary.pre = "llama3";
  EXPECT_TRUE(Make(vocabulary)->adds_bos());
  EXPECT_EQ(Make(vocabulary)->Encode("hello"), (Ids{261, 259}));
  vocabulary.add_bos = false;
  EXPECT_FALSE(Make(vocabulary)->adds_bos());
  vocabulary.add_bos = true;
  vocabulary.bos.reset();
  EXPECT_FALSE(Make(vocabulary)->adds_bos());
}

TEST(BytePairs, TokenElevenIsTheDefaultOnlyWhereItIsAControlToken) {
  EXPECT_EQ(Make(SmallBytePairs())->eos(), std::nullopt);
  Vocabulary vocabulary = SmallBytePairs();
  vocabulary.kinds[11] = TokenKind::kControl;
  EXPECT_EQ(Make(vocabulary)->bos(), 11);
  EXPECT_EQ(Make(vocabulary)->eos(), 11);
}

TEST(BytePairs, AMissingPreTokenizerIsWarnedOf) {
  Vocabulary vocabulary = SmallBytePairs();
  vocabulary.pre.reset();
  const auto tokenizer = Make(vocabulary);
  EXPECT_EQ(tokenizer->pre_tokenizer_name(), "default");
  ASSERT_EQ(tokenizer->warnings().size(), 1u);
  EXPECT_NE(tokenizer->warnings()[0].find("tokenizer.ggml.pre is missing"), std::string::npos);
}

TEST(BytePairs, PiecesOfTokens) {
  const auto tokenizer = Make(SmallBytePairs());
  EXPECT_EQ(tokenizer->Piece(260), " hello");
  EXPECT_EQ(tokenizer->Piece(0xE4), "\xE4");
  EXPECT_EQ(tokenizer->Piece(261), "");
  EXPECT_EQ(tokenizer->Piece(261, true), "<|end|>");
  EXPECT_EQ(tokenizer->Piece(262), "<|end|><|end|>");
  EXPECT_EQ(tokenizer->Text(260), "Ġhello");
  EXPECT_EQ(tokenizer->Find("Ġhello"), 260);
  EXPECT_EQ(tokenizer->Find(" hello"), std::nullopt);
}

}  // namespace
}  // namespace winnow::tokenizer
