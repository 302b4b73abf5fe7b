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

// How ordinary text becomes tokens: what differs between kinds of tokenizers. Immutable and
// thread-safe.
class Algorithm {
 public:
  virtual ~Algorithm() = default;

  // Appends the tokens of all fragments; those that are tokens already are copied. No token that
  // the vocabulary reserves (Vocabulary::IsReserved) comes out of ordinary text.
  virtual void Encode(std::span<const Fragment> fragments, std::vector<TokenId>& out) const = 0;

  // The bytes that an ordinary token stands for. `token` is of kind kNormal, kUnused or kByte.
  virtual std::string Bytes(TokenId token) const = 0;

  // Whether Encode puts a space before the text, and before what follows a special token.
  virtual bool adds_space() const = 0;
};

// What an algorithm is made from; all of it must outlive the algorithm.
struct AlgorithmInput {
  const Vocabulary& vocabulary;
  const StringIndex& index;            // of vocabulary.texts
  std::vector<std::string>& warnings;  // what the user should be told is appended
};

// SentencePiece-style: the whole text, spaces written as U+2581, merged by score; what is no token
// becomes bytes.
Result<std::unique_ptr<Algorithm>> MakeSentencePiece(const AlgorithmInput& input);

// Byte-level BPE: text cut by the pre-tokenizer `pre`, the bytes of each piece merged by rank.
Result<std::unique_ptr<Algorithm>> MakeBytePairs(const AlgorithmInput& input, std::string_view pre);

}  // namespace winnow::tokenizer
