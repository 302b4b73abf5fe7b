#pragma once

#include <cstddef>
#include <functional>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "tokenizer/tokenizer.h"

namespace winnow::eval {

// Bytes: of text that is encoded at once, and of text around the place where blocks meet that both
// see.
struct TokenStreamSizes {
  size_t block = size_t{1} << 18;
  size_t overlap = size_t{1} << 12;
};

// The tokens of a text of any length, some at a time: what is held does not grow with the text.
// They are those that Encode gives for all of it. (Only a stretch without white space of more than
// a block, or a text with tokens whose bytes are not its own, unknown ones, may come out
// differently where blocks meet.)
class TokenStream {
 public:
  // `source` gives pieces of the text, an empty one at the end.
  TokenStream(const tokenizer::Tokenizer& tokenizer, std::function<Result<std::string>()> source,
              TokenStreamSizes sizes = {})
      : tokenizer_(tokenizer), source_(std::move(source)), sizes_(sizes) {}

  // Appends the next tokens. False: there are none left. Error: that of the source.
  Result<bool> Next(std::vector<tokenizer::TokenId>& tokens);

 private:
  struct Cut {
    size_t n_tokens = 0;  // of the block
    size_t n_bytes = 0;   // that they stand for
  };
  bool IsBetweenWords(size_t at) const;
  // The last boundary of tokens that has white space behind it, or else any, at most `most` bytes
  // and more than `least` into the buffer; nothing if there is none.
  Cut LastCut(const std::vector<size_t>& ends, size_t min, size_t max) const;

  const tokenizer::Tokenizer& tokenizer_;
  std::function<Result<std::string>()> source_;
  TokenStreamSizes sizes_;
  std::string buffer_;     // the text from a boundary before the next token on
  size_t n_emitted_ = 0;   // bytes of it whose tokens were given
  bool begun_ = false;     // the beginning of text was given
  bool ended_ = false;     // the source has no more
  bool finished_ = false;  // the end of text was given
};

}  // namespace winnow::eval
