#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace winnow::tokenizer {

// Cuts text into pieces that byte-level BPE never merges across: one or more regular expressions,
// each cutting the pieces that the one before left. Text between matches is kept as a piece of its
// own.
class PreTokenizer {
 public:
  // `name` is a value of tokenizer.ggml.pre. Errors: an unknown name; the message lists the known
  // ones.
  static Result<PreTokenizer> Make(std::string_view name);
  ~PreTokenizer();
  PreTokenizer(PreTokenizer&&) noexcept;
  PreTokenizer& operator=(PreTokenizer&&) noexcept;

  // The pieces of `text`, in order, not empty; joined they are `text`. Runs of bytes that are not
  // UTF-8 are pieces of their own.
  std::vector<std::string_view> Split(std::string_view text) const;

  // A piece that is itself a token is taken whole, whatever the merges say.
  bool takes_whole_pieces() const;
  // Whether models of this family put BOS before a text when the file does not say.
  bool adds_bos() const;

 private:
  struct Data;
  explicit PreTokenizer(std::unique_ptr<Data> data);
  std::unique_ptr<Data> data_;
};

// All known names, in the order of the table, separated by ", ".
std::string PreTokenizerNames();

}  // namespace winnow::tokenizer
