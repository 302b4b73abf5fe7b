#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "tokenizer/special_tokens.h"
#include "tokenizer/string_index.h"
#include "tokenizer/vocabulary.h"

namespace winnow::tokenizer {

// Whether a text begins anew or continues ordinary text.
enum class TextStart { kBegins, kContinues };

// The part that differs between kinds of tokenizers: how ordinary text becomes tokens. Immutable
// and thread-safe.
class Algorithm {
 public:
  virtual ~Algorithm() = default;

  // Appends the tokens of all fragments; fragments that are tokens are copied. Ordinary text never
  // yields a token that the vocabulary reserves (Vocabulary::IsReserved).
  virtual void Encode(std::span<const Fragment> fragments, TextStart start,
                      std::vector<TokenId>& out) const = 0;

  // The bytes an ordinary token stands for. Requires: `token` is of kind kNormal, kUnused or kByte.
  virtual std::string Bytes(TokenId token) const = 0;

  // Whether Encode puts a space before a text that begins, and before text that follows a special
  // token.
  virtual bool adds_space() const = 0;
};

// Inputs of an algorithm; all of them must outlive it.
struct AlgorithmInput {
  const Vocabulary& vocabulary;
  const StringIndex& index;            // of vocabulary.texts
  std::vector<std::string>& warnings;  // messages for the user are appended
};

// SentencePiece-style BPE: merges the whole text by score, with spaces written as U+2581.
// Characters without a token become byte tokens.
Result<std::unique_ptr<Algorithm>> MakeSentencePiece(const AlgorithmInput& input);

// Byte-level BPE: the pre-tokenizer `pre` splits the text, and the bytes of each piece are merged
// by rank.
Result<std::unique_ptr<Algorithm>> MakeBytePairs(const AlgorithmInput& input, std::string_view pre);

}  // namespace winnow::tokenizer
