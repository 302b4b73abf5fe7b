#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "tokenizer/tokenizer.h"

namespace winnow::eval {

// In bytes: the text that is encoded at once, and the text around a block boundary that both blocks
// see.
struct TokenStreamSizes {
  size_t block = size_t{1} << 18;
  size_t overlap = size_t{1} << 12;
};

// Encodes a text of any length piece by piece; memory does not grow with the text. The tokens are
// those that Encode gives for the whole text. Two cases may differ where blocks meet: a stretch of
// more than a block without white space, and tokens whose bytes are not those of the text (unknown
// tokens).
class TokenStream {
 public:
  // `source` returns pieces of the text, and an empty one at the end.
  TokenStream(const tokenizer::Tokenizer& tokenizer, std::function<Result<std::string>()> source,
              TokenStreamSizes sizes = {})
      : tokenizer_(tokenizer), source_(std::move(source)), sizes_(sizes) {}

  // Appends the next tokens. False: there are none left. Error: that of the source.
  Result<bool> Next(std::vector<tokenizer::TokenId>& tokens);

 private:
  struct Cut {
    size_t n_tokens = 0;  // of the block
    size_t n_bytes = 0;   // bytes that they stand for
  };
  bool IsBetweenWords(size_t at) const;
  // The last token boundary followed by white space, or else any boundary, at most `max` and more
  // than `min` bytes into the buffer; n_tokens is 0 if there is none.
  Cut LastCut(const std::vector<size_t>& ends, size_t min, size_t max) const;

  const tokenizer::Tokenizer& tokenizer_;
  std::function<Result<std::string>()> source_;
  TokenStreamSizes sizes_;
  std::string buffer_;     // the text from a token boundary before the next token on
  size_t n_emitted_ = 0;   // bytes of it whose tokens were emitted
  bool begun_ = false;     // BOS was handled
  bool ended_ = false;     // the source has no more
  bool finished_ = false;  // EOS was emitted
};

}  // namespace winnow::eval
