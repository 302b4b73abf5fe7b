#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tokenizer/tokenizer.h"
#include "tokenizer/vocabulary.h"

namespace winnow::tokenizer::testing {

inline constexpr EncodeOptions kPlain = {.add_special = false, .parse_special = false};
inline constexpr EncodeOptions kSpecial = {.add_special = false, .parse_special = true};

// Builds vocabularies for tests, without a file.
class VocabularyBuilder {
 public:
  explicit VocabularyBuilder(std::string_view model) : model_(model) {}

  // Assigns ids from 0 up.
  VocabularyBuilder& Token(std::string_view text, TokenKind kind = TokenKind::kNormal,
                           float score = 0);
  VocabularyBuilder& Merge(std::string_view merge);  // "left right"

  Vocabulary Build() const;

 private:
  std::string model_;
  std::vector<std::string> texts_;
  std::vector<TokenKind> kinds_;
  std::vector<float> scores_;
  std::vector<std::string> merges_;
};

// SentencePiece-style: 0 <unk>, 1 <s>, 2 </s>, 3 to 258 the bytes, then with scores in brackets
//   259 U+2581 (-9)   260 h (-10)       261 e (-11)    262 l (-12)      263 o (-13)
//   264 he (-1)       265 ll (-2)       266 hell (-3)  267 hello (-4)   268 U+2581 "hello" (-5)
//   269 <|user|> (control)              270 "\n\n" (user-defined)       271 ä (-14)
Vocabulary SmallSentencePiece();

// Byte-level BPE, pre-tokenizer gpt-2: 0 to 255 the bytes in order, then
//   256 he  257 ll  258 hell  259 hello  260 Ġhello  261 <|end|> (control)  262 <|end|><|end|>
//   (user-defined)
// The tokens 256 to 260 are merges of rank id - 256.
Vocabulary SmallBytePairs();

// Calls MakeTokenizer, which must succeed.
std::unique_ptr<Tokenizer> Make(Vocabulary vocabulary);

}  // namespace winnow::tokenizer::testing
