#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "gguf/file.h"

namespace winnow::tokenizer {

using TokenId = int32_t;

enum class TokenKind { kNormal, kUnknown, kControl, kUserDefined, kUnused, kByte };

struct EncodeOptions {
  bool add_special = true;    // BOS/EOS as the model wants them
  bool parse_special = true;  // control tokens written in the text become tokens
};

// A stretch of a longer text, and whether control tokens written in it are meant. Where a template
// and what a user typed are joined, only the template's own words may become control tokens.
struct MarkedText {
  std::string text;
  bool parse_special = false;

  bool operator==(const MarkedText&) const = default;
};

// Text <-> tokens, as the model's file defines it. Immutable and thread-safe once loaded.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // Errors: unknown tokenizer or pre-tokenizer (named, with the supported ones), inconsistent
  // vocabulary. The file may be vocabulary-only.
  static Result<std::unique_ptr<Tokenizer>> Load(std::shared_ptr<const gguf::File> file);

  // Any bytes are accepted, valid UTF-8 or not. Requires: less than 1 GiB of text.
  virtual std::vector<TokenId> Encode(std::string_view text,
                                      const EncodeOptions& options = {}) const = 0;

  // As Encode of the joined texts, but no control token is found that lies, even in part, in a
  // stretch without `parse_special`. Stretches are not cut apart otherwise: tokens may span them.
  // With `add_special`, BOS is added as the model wants it, unless the text begins with it; EOS is
  // not: the text is there to be continued.
  virtual std::vector<TokenId> EncodeMarked(std::span<const MarkedText> stretches,
                                            bool add_special = true) const = 0;

  // The bytes this token stands for in running text. Control tokens give nothing unless
  // `render_special`.
  virtual std::string Piece(TokenId token, bool render_special = false) const = 0;
  // Whole texts: pieces joined; a leading space that Encode added is removed. Bytes may be invalid
  // UTF-8 if the tokens are.
  virtual std::string Decode(std::span<const TokenId> tokens,
                             bool render_special = false) const = 0;

  virtual int64_t vocabulary_size() const = 0;
  virtual std::string_view Text(TokenId token) const = 0;  // the vocabulary's own spelling
  virtual TokenKind Kind(TokenId token) const = 0;
  virtual std::optional<TokenId> Find(std::string_view text) const = 0;  // by vocabulary spelling

  virtual std::optional<TokenId> bos() const = 0;
  virtual std::optional<TokenId> eos() const = 0;
  virtual bool adds_bos() const = 0;
  virtual bool adds_eos() const = 0;
  virtual bool IsEndOfGeneration(
      TokenId token) const = 0;  // eos, eot, eom and their known spellings
  virtual std::vector<TokenId> end_of_generation() const = 0;

  virtual std::string_view model_name() const = 0;  // "llama", "gpt2"
  virtual std::string_view pre_tokenizer_name()
      const = 0;  // "qwen2"; empty for SentencePiece-style

  // What is wrong with the vocabulary, though not so wrong as to refuse it. One line each, for the
  // user to see.
  virtual std::vector<std::string> warnings() const { return {}; }
};

// Joins pieces into valid UTF-8: holds back an incomplete character until it is complete. Bytes
// that can never become a character are given out as U+FFFD, one for each maximal subpart (Unicode
// standard, section 3.9). A leading space stays: what is streamed usually goes on from a prompt.
// Whole texts are for Tokenizer::Decode.
class StreamDecoder {
 public:
  explicit StreamDecoder(const Tokenizer& tokenizer, bool render_special = false);
  // Text that became complete with this token; may be empty.
  std::string Push(TokenId token);
  // What is still held back, as U+FFFD; the decoder is then as new.
  std::string Finish();

 private:
  const Tokenizer* tokenizer_;
  bool render_special_;
  std::string held_;
};

}  // namespace winnow::tokenizer
