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
  bool add_special = true;    // BOS and EOS as the model wants them
  bool parse_special = true;  // parse control tokens written in the text
};

// A piece of a longer text, and whether control tokens written in it are parsed. In a rendered
// template only the template's own markup may become control tokens, not the user's text.
struct MarkedText {
  std::string text;
  bool parse_special = false;

  bool operator==(const MarkedText&) const = default;
};

// Text <-> tokens, as the model's file defines it. Immutable and thread-safe after Load.
class Tokenizer {
 public:
  virtual ~Tokenizer() = default;

  // Errors: an unknown tokenizer or pre-tokenizer (the message lists the supported ones), an
  // inconsistent vocabulary. The file may be vocabulary-only.
  static Result<std::unique_ptr<Tokenizer>> Load(std::shared_ptr<const gguf::File> file);

  // Accepts any bytes, valid UTF-8 or not. Requires: less than 1 GiB of text.
  virtual std::vector<TokenId> Encode(std::string_view text,
                                      const EncodeOptions& options = {}) const = 0;

  // Encodes the concatenated pieces. A control token is not recognized if any part of it lies in a
  // piece without `parse_special`; ordinary tokens may span pieces. With `add_special` BOS is added
  // as the model wants it, unless the text begins with it. EOS is never added: the text is a
  // prompt.
  virtual std::vector<TokenId> EncodeMarked(std::span<const MarkedText> stretches,
                                            bool add_special = true) const = 0;
  // The same for a text that follows the token `last`: without BOS, and without the space that some
  // vocabularies put before a text (after a control token they put it as well). Tokens do not reach
  // across the cut.
  virtual std::vector<TokenId> EncodeAfter(TokenId last,
                                           std::span<const MarkedText> stretches) const = 0;

  // The bytes a token stands for in running text. Control tokens give nothing unless
  // `render_special`.
  virtual std::string Piece(TokenId token, bool render_special = false) const = 0;
  // Decodes a whole text: concatenates the pieces and removes a leading space that Encode added.
  // The bytes may be invalid UTF-8 if the tokens are.
  virtual std::string Decode(std::span<const TokenId> tokens,
                             bool render_special = false) const = 0;

  virtual int64_t vocabulary_size() const = 0;
  virtual std::string_view Text(TokenId token) const = 0;  // the vocabulary's spelling
  virtual TokenKind Kind(TokenId token) const = 0;
  virtual std::optional<TokenId> Find(std::string_view text) const = 0;  // by that spelling

  virtual std::optional<TokenId> bos() const = 0;
  virtual std::optional<TokenId> eos() const = 0;
  virtual bool adds_bos() const = 0;
  virtual bool adds_eos() const = 0;
  // EOS, EOT, EOM, and tokens with known spellings of these.
  virtual bool IsEndOfGeneration(TokenId token) const = 0;
  virtual std::vector<TokenId> end_of_generation() const = 0;

  virtual std::string_view model_name() const = 0;          // "llama", "gpt2"
  virtual std::string_view pre_tokenizer_name() const = 0;  // "qwen2"; empty: SentencePiece-style

  // Problems of the vocabulary that do not prevent its use, one line each, for the user.
  virtual std::vector<std::string> warnings() const { return {}; }
};

// Decodes a stream of tokens to valid UTF-8. Holds back an incomplete character until it is
// complete. Bytes that can never become a character are replaced by U+FFFD, one for each maximal
// subpart (Unicode standard, section 3.9). Unlike Tokenizer::Decode it keeps a leading space,
// because a stream usually continues a prompt.
class StreamDecoder {
 public:
  explicit StreamDecoder(const Tokenizer& tokenizer, bool render_special = false);
  // Returns the text completed by this token; may be empty.
  std::string Push(TokenId token);
  // Returns the incomplete rest as U+FFFD and resets the decoder.
  std::string Finish();
  // Whether the last token ended within a character.
  bool holds_text() const { return !held_.empty(); }

 private:
  const Tokenizer* tokenizer_;
  bool render_special_;
  std::string held_;
};

}  // namespace winnow::tokenizer
