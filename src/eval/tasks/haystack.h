#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/rng.h"
#include "eval/run/prompt.h"
#include "tokenizer/tokenizer.h"

namespace winnow::eval {

// A statement to be put into a text, and where.
struct Needle {
  std::string text;
  double depth = 0;  // per cent of the text's tokens
};

// Builds texts of a wanted number of tokens around needles.
class Haystack {
 public:
  Haystack(const tokenizer::Tokenizer& tokenizer, std::string text);

  // About n_tokens of the text, from sentence `start` on, from its beginning again where it ends,
  // with the needles inside, each moved back to the end of the sentence before its place (100 %: at
  // the very end). Requires: n_tokens >= 0.
  std::string Build(int64_t n_tokens, size_t start, const std::vector<Needle>& needles) const;
  size_t n_sentences() const { return starts_.size(); }

 private:
  const tokenizer::Tokenizer& tokenizer_;
  std::string text_;
  std::vector<size_t> starts_;  // of sentences, bytes in the text
  double tokens_per_byte_ = 1;
};

// Where sentences end in a text: after ".", "!" or "?", and quotes that close, before white space;
// and at line ends. Ascending.
std::vector<size_t> SentenceEnds(std::string_view text);

}  // namespace winnow::eval
