#include "tokenizer/testing/small_vocabulary.h"

#include <cstdio>
#include <memory>
#include <utility>

#include "base/check.h"
#include "tokenizer/byte_alphabet.h"

namespace winnow::tokenizer::testing {

VocabularyBuilder& VocabularyBuilder::Token(std::string_view text, TokenKind kind, float score) {
  texts_.emplace_back(text);
  kinds_.push_back(kind);
  scores_.push_back(score);
  return *this;
}

VocabularyBuilder& VocabularyBuilder::Merge(std::string_view merge) {
  merges_.emplace_back(merge);
  return *this;
}

Vocabulary VocabularyBuilder::Build() const {
  const auto owner =
      std::make_shared<std::pair<std::vector<std::string>, std::vector<std::string>>>(texts_,
                                                                                      merges_);
  Vocabulary vocabulary;
  vocabulary.model = model_;
  vocabulary.texts.assign(owner->first.begin(), owner->first.end());
  vocabulary.kinds = kinds_;
  if (model_ == "llama") vocabulary.scores = scores_;
  vocabulary.merges.assign(owner->second.begin(), owner->second.end());
  vocabulary.owner = owner;
  return vocabulary;
}

Vocabulary SmallSentencePiece() {
  VocabularyBuilder builder("llama");
  builder.Token("<unk>", TokenKind::kUnknown)
      .Token("<s>", TokenKind::kControl)
      .Token("</s>", TokenKind::kControl);
  for (int byte = 0; byte < 256; ++byte) {
    char text[8];
    std::snprintf(text, sizeof(text), "<0x%02X>", static_cast<unsigned>(byte));
    builder.Token(text, TokenKind::kByte);
  }
  builder.Token("▁", TokenKind::kNormal, -9)
      .Token("h", TokenKind::kNormal, -10)
      .Token("e", TokenKind::kNormal, -11)
      .Token("l", TokenKind::kNormal, -12)
      .Token("o", TokenKind::kNormal, -13)
      .Token("he", TokenKind::kNormal, -1)
      .Token("ll", TokenKind::kNormal, -2)
      .Token("hell", TokenKind::kNormal, -3)
      .Token("hello", TokenKind::kNormal, -4)
      .Token("▁hello", TokenKind::kNormal, -5)
      .Token("<|user|>", TokenKind::kControl)
      .Token("\n\n", TokenKind::kUserDefined)
      .Token("ä", TokenKind::kNormal, -14);
  return builder.Build();
}

Vocabulary SmallBytePairs() {
  VocabularyBuilder builder("gpt2");
  for (int byte = 0; byte < 256; ++byte) builder.Token(CharacterOfByte(static_cast<uint8_t>(byte)));
  builder.Token("he").Token("ll").Token("hell").Token("hello").Token("Ġhello");
  builder.Token("<|end|>", TokenKind::kControl).Token("<|end|><|end|>", TokenKind::kUserDefined);
  builder.Merge("h e").Merge("l l").Merge("he ll").Merge("hell o").Merge("Ġ hello");
  Vocabulary vocabulary = builder.Build();
  vocabulary.pre = "gpt-2";
  return vocabulary;
}

std::unique_ptr<Tokenizer> Make(Vocabulary vocabulary) {
  Result<std::unique_ptr<Tokenizer>> tokenizer = MakeTokenizer(std::move(vocabulary));
  WINNOW_CHECK(tokenizer.has_value());
  return std::move(tokenizer).value();
}

}  // namespace winnow::tokenizer::testing
