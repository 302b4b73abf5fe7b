#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace winnow::tokenizer {

// Splits text into pieces that byte-level BPE never merges across. One or more regular expressions
// are applied in turn, each to the pieces of the previous one. Text between matches becomes a piece
// of its own.
class PreTokenizer {
 public:
  // `name` is a value of tokenizer.ggml.pre. Errors: an unknown name; the message lists the known
  // ones.
  static Result<PreTokenizer> Make(std::string_view name);
  ~PreTokenizer();
  PreTokenizer(PreTokenizer&&) noexcept;
  PreTokenizer& operator=(PreTokenizer&&) noexcept;

  // The non-empty pieces of `text`, in order; concatenated they are `text`. Runs of invalid UTF-8
  // are pieces of their own.
  std::vector<std::string_view> Split(std::string_view text) const;

  // Whether a piece that is itself a token becomes that token regardless of the merges.
  bool takes_whole_pieces() const;
  // Whether models of this family put BOS before a text if the file does not say.
  bool adds_bos() const;

 private:
  struct Data;
  explicit PreTokenizer(std::unique_ptr<Data> data);
  std::unique_ptr<Data> data_;
};

// All known names, in the order of the table, separated by ", ".
std::string PreTokenizerNames();

}  // namespace winnow::tokenizer
