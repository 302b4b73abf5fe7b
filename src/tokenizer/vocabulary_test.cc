#include "tokenizer/vocabulary.h"

#include <gtest/gtest.h>

#include <limits>
#include <string>

#include "gguf/testing/builder.h"
#include "tokenizer/testing/small_vocabulary.h"

namespace winnow::tokenizer {
namespace {

using gguf::testing::Builder;

// A valid file with a vocabulary of three tokens.
Builder SmallFile() {
  Builder builder;
  builder.String("general.architecture", "llama")
      .String("tokenizer.ggml.model", "gpt2")
      .String("tokenizer.ggml.pre", "gpt-2")
      .Strings("tokenizer.ggml.tokens", {"a", "b", "ab"})
      .Int32s("tokenizer.ggml.token_type", {1, 1, 1})
      .Strings("tokenizer.ggml.merges", {"a b"});
  return builder;
}

Result<std::unique_ptr<Tokenizer>> Load(const Builder& builder) {
  auto file = gguf::File::Parse(builder.Bytes());
  if (!file) return file.error();
  return Tokenizer::Load(std::move(file).value());
}

// The error of loading; empty if there is none.
std::string ErrorText(const Builder& builder) {
  const auto tokenizer = Load(builder);
  return tokenizer ? "" : tokenizer.error().message;
}

#define EXPECT_REFUSED(builder, part)                                         \
  do {                                                                        \
    const std::string message = ErrorText(builder);                           \
    EXPECT_NE(message.find(part), std::string::npos) << "error: " << message; \
  } while (false)

TEST(Vocabulary, LoadsFromAFile) {
  const auto tokenizer = Load(SmallFile());
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  EXPECT_EQ((*tokenizer)->vocabulary_size(), 3);
  EXPECT_EQ((*tokenizer)->Encode("abab"), (std::vector<TokenId>{2, 2}));
  EXPECT_EQ((*tokenizer)->model_name(), "gpt2");
  EXPECT_EQ((*tokenizer)->pre_tokenizer_name(), "gpt-2");
}

TEST(Vocabulary, IdsAndFlagsComeFromTheFile) {
  Builder builder = SmallFile();
  builder.Uint32("tokenizer.ggml.bos_token_id", 0)
      .Uint64("tokenizer.ggml.eos_token_id", 1)
      .Int32("tokenizer.ggml.eot_token_id", 2)
      .Bool("tokenizer.ggml.add_bos_token", true)
      .Bool("tokenizer.ggml.add_eos_token", true);
  const auto tokenizer = Load(builder);
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  EXPECT_EQ((*tokenizer)->Encode("ab"), (std::vector<TokenId>{0, 2, 1}));
  EXPECT_EQ((*tokenizer)->end_of_generation(), (std::vector<TokenId>{1, 2}));
}

TEST(Vocabulary, TokenTypes) {
  Builder builder = SmallFile();
  builder.Remove("tokenizer.ggml.tokens").Remove("tokenizer.ggml.token_type");
  builder.Strings("tokenizer.ggml.tokens", {"a", "b", "c", "d", "e", "ab"})
      .Int32s("tokenizer.ggml.token_type", {0, 1, 2, 3, 4, 5});
  const auto tokenizer = Load(builder);
  ASSERT_TRUE(tokenizer) << tokenizer.error().message;
  const TokenKind kinds[] = {TokenKind::kNormal,  TokenKind::kNormal,      TokenKind::kUnknown,
                             TokenKind::kControl, TokenKind::kUserDefined, TokenKind::kUnused};
  for (TokenId i = 0; i < 6; ++i) EXPECT_EQ((*tokenizer)->Kind(i), kinds[i]) << i;
}

TEST(Vocabulary, OtherTokenizersAreRefusedByName) {
  for (const char* model : {"bert", "t5", "rwkv", "plamo2", "gemma4", "none", "no_vocab"}) {
    Builder builder = SmallFile();
    builder.Remove("tokenizer.ggml.model").String("tokenizer.ggml.model", model);
    EXPECT_REFUSED(builder,
                   "tokenizer '" + std::string(model) + "' not supported, supported: llama, gpt2");
  }
  EXPECT_REFUSED(SmallFile().Remove("tokenizer.ggml.model"), "tokenizer.ggml.model: missing");
  Builder builder = SmallFile();
  builder.Remove("tokenizer.ggml.model").String("tokenizer.ggml.model", "\x1b[2J");
  EXPECT_REFUSED(builder, "tokenizer '\\x1b[2J' not supported");
}

TEST(Vocabulary, NoVocabularyNeedsNoTokensToBeRefusedByName) {
  Builder builder;
  builder.String("tokenizer.ggml.model", "no_vocab");
  EXPECT_REFUSED(builder, "tokenizer 'no_vocab' not supported");
}

TEST(Vocabulary, UnknownPreTokenizersAreRefused) {
  Builder builder = SmallFile();
  builder.Remove("tokenizer.ggml.pre").String("tokenizer.ggml.pre", "klingon");
  EXPECT_REFUSED(builder, "pre-tokenizer 'klingon' unknown, supported: llama-bpe");
}

TEST(Vocabulary, ListsOfDifferentLengthsAreRefused) {
  Builder types = SmallFile();
  types.Remove("tokenizer.ggml.token_type").Int32s("tokenizer.ggml.token_type", {1, 1});
  EXPECT_REFUSED(types, "tokenizer.ggml.token_type: 2 entries for 3 tokens");
  EXPECT_REFUSED(SmallFile().Float32s("tokenizer.ggml.scores", {0, 0, 0, 0}),
                 "tokenizer.ggml.scores: 4 entries for 3 tokens");
  EXPECT_REFUSED(SmallFile().Remove("tokenizer.ggml.tokens"), "tokenizer.ggml.tokens: no tokens");
  EXPECT_REFUSED(SmallFile().Remove("tokenizer.ggml.tokens").Strings("tokenizer.ggml.tokens", {}),
                 "tokenizer.ggml.tokens: no tokens");
}

TEST(Vocabulary, ListsOfOtherTypesAreRefused) {
  EXPECT_REFUSED(
      SmallFile().Remove("tokenizer.ggml.tokens").Int32s("tokenizer.ggml.tokens", {1, 2, 3}),
      "tokenizer.ggml.tokens");
  EXPECT_REFUSED(SmallFile()
                     .Remove("tokenizer.ggml.token_type")
                     .Float32s("tokenizer.ggml.token_type", {1, 1, 1}),
                 "tokenizer.ggml.token_type");
  EXPECT_REFUSED(SmallFile().Strings("tokenizer.ggml.scores", {"a", "b", "c"}),
                 "tokenizer.ggml.scores");
  EXPECT_REFUSED(SmallFile().Remove("tokenizer.ggml.merges").Int32s("tokenizer.ggml.merges", {1}),
                 "tokenizer.ggml.merges");
}

TEST(Vocabulary, TokenTypesThatDoNotExistAreRefused) {
  for (int32_t type : {-1, 7}) {
    Builder builder = SmallFile();
    builder.Remove("tokenizer.ggml.token_type").Int32s("tokenizer.ggml.token_type", {1, type, 1});
    EXPECT_REFUSED(builder, "token_type: entry 1 is " + std::to_string(type) + ", expected 0 to 6");
  }
}

TEST(Vocabulary, SpecialIdsOutsideTheVocabularyAreRefused) {
  for (const char* name : {"bos", "eos", "eot", "eom", "unknown", "seperator", "padding", "mask",
                           "fim_pre", "fim_suf", "fim_mid", "fim_pad", "fim_rep", "fim_sep"}) {
    const std::string key = "tokenizer.ggml." + std::string(name) + "_token_id";
    EXPECT_REFUSED(SmallFile().Uint32(key, 3), key + ": 3 is outside the vocabulary of 3 tokens");
    EXPECT_REFUSED(SmallFile().Int32(key, -1), key + ": -1 is outside the vocabulary of 3 tokens");
    EXPECT_EQ(ErrorText(SmallFile().Uint32(key, 2)), "");
  }
}

TEST(Vocabulary, TextThatIsNotUtf8IsRefused) {
  Vocabulary vocabulary = testing::SmallBytePairs();
  vocabulary.texts[7] = "a\xC3";
  const auto tokenizer = MakeTokenizer(vocabulary);
  ASSERT_FALSE(tokenizer);
  EXPECT_EQ(tokenizer.error().message, "tokenizer: tokenizer.ggml.tokens: entry 7 is not UTF-8");
}

TEST(Vocabulary, MergesThatAreNotTwoPartsAreRefused) {
  for (const char* merge : {"ab", "", "a ", " a"}) {
    Builder builder = SmallFile();
    builder.Remove("tokenizer.ggml.merges").Strings("tokenizer.ggml.merges", {"a b", merge});
    EXPECT_REFUSED(builder, "tokenizer.ggml.merges: entry 1 is '" + std::string(merge) + "'");
  }
}

TEST(Vocabulary, MalformedByteTokensAreRefused) {
  for (const char* text : {"<0x-1>", "<0xZZ>", "<0x1>", "<0x111>", "0x11", "<0x 1>", "<0x+1>"}) {
    EXPECT_EQ(ParseByteToken(text), std::nullopt) << text;
    Vocabulary vocabulary = testing::SmallSentencePiece();
    vocabulary.texts[10] = text;
    const auto tokenizer = MakeTokenizer(vocabulary);
    ASSERT_FALSE(tokenizer) << text;
    EXPECT_NE(
        tokenizer.error().message.find("entry 10 is a byte token spelled '" + std::string(text)),
        std::string::npos)
        << tokenizer.error().message;
  }
  EXPECT_EQ(ParseByteToken("<0x0A>"), 10);
  EXPECT_EQ(ParseByteToken("<0xff>"), 255);
}

TEST(Vocabulary, ScoresThatAreNotNumbersAreRefused) {
  Vocabulary vocabulary = testing::SmallSentencePiece();
  vocabulary.scores[260] = std::numeric_limits<float>::quiet_NaN();
  const auto tokenizer = MakeTokenizer(vocabulary);
  ASSERT_FALSE(tokenizer);
  EXPECT_EQ(tokenizer.error().message,
            "tokenizer: tokenizer.ggml.scores: entry 260 is not a number");
}

TEST(Vocabulary, EndOfGenerationIsASet) {
  testing::VocabularyBuilder builder("gpt2");
  builder.Token("a")
      .Token("<|endoftext|>", TokenKind::kControl)
      .Token("<|im_end|>", TokenKind::kControl);
  builder.Token("<end_of_turn>").Token("b").Token("c");
  Vocabulary vocabulary = builder.Build();
  vocabulary.eos = 1;
  vocabulary.eom = 5;
  const auto tokenizer = testing::Make(vocabulary);
  EXPECT_EQ(tokenizer->end_of_generation(), (std::vector<TokenId>{1, 2, 3, 5}));
  EXPECT_TRUE(tokenizer->IsEndOfGeneration(2));
  EXPECT_FALSE(tokenizer->IsEndOfGeneration(4));
  // An ordinary token with such a spelling becomes a control token.
  EXPECT_EQ(tokenizer->Kind(3), TokenKind::kControl);
}

TEST(Vocabulary, Phi3TokensTakeTheSpaceBehindThem) {
  testing::VocabularyBuilder builder("llama");
  builder.Token("<unk>", TokenKind::kControl).Token("<s>", TokenKind::kControl);
  builder.Token("<|user|>", TokenKind::kControl).Token("▁").Token("a");
  Vocabulary vocabulary = builder.Build();
  vocabulary.add_bos = false;
  EXPECT_EQ(testing::Make(vocabulary)->Encode("<|user|>\n a").size(),
            5u);  // the newline is unknown
  vocabulary.general_name = "Phi-3 mini";
  EXPECT_EQ(testing::Make(vocabulary)->Encode("<|user|>\n a"), (std::vector<TokenId>{2, 3, 4}));
  EXPECT_EQ(testing::Make(vocabulary)->Encode("<s> a"), (std::vector<TokenId>{1, 3, 3, 4}));
}

}  // namespace
}  // namespace winnow::tokenizer
