#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/rng.h"
#include "eval/run/prompt.h"
#include "tokenizer/tokenizer.h"

namespace winnow::eval {

// A statement to insert into a text, and where.
struct Needle {
  std::string text;
  double depth = 0;  // per cent of the text's tokens
};

// Builds texts of a given number of tokens around needles.
class Haystack {
 public:
  Haystack(const tokenizer::Tokenizer& tokenizer, std::string text);

  // About n_tokens of the text from sentence `start` on, beginning again where the text ends, plus
  // the needles. Each needle moves back to the end of the sentence before its place (100 %: the
  // very end). Requires: n_tokens >= 0.
  std::string Build(int64_t n_tokens, size_t start, const std::vector<Needle>& needles) const;
  size_t n_sentences() const { return starts_.size(); }

 private:
  const tokenizer::Tokenizer& tokenizer_;
  std::string text_;
  std::vector<size_t> starts_;  // byte offsets of the sentences
  double tokens_per_byte_ = 1;
};

// The ends of sentences in a text, ascending: after ".", "!" or "?" and closing quotes or brackets,
// if white space follows; and at line ends.
std::vector<size_t> SentenceEnds(std::string_view text);

}  // namespace winnow::eval
