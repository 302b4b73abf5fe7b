#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "gguf/file.h"
#include "tokenizer/tokenizer.h"

namespace winnow::tokenizer {

// The tokenizer data of a file. All texts are views; `owner` keeps the memory behind them alive.
struct Vocabulary {
  std::string model;                     // "llama", "gpt2"
  std::optional<std::string> pre;        // gpt2 only
  std::string general_name;              // llama.cpp has quirks that depend on the model's name
  std::vector<std::string_view> texts;   // by token id, in the vocabulary's spelling
  std::vector<TokenKind> kinds;          // by token id
  std::vector<float> scores;             // by token id; llama only
  std::vector<std::string_view> merges;  // "left right", highest priority first; gpt2 only
  std::optional<TokenId> bos;
  std::optional<TokenId> eos;
  std::optional<TokenId> eot;
  std::optional<TokenId> eom;
  std::optional<TokenId> unknown;
  std::optional<bool> add_bos;
  std::optional<bool> add_eos;
  std::optional<bool> add_space_prefix;  // llama only
  std::shared_ptr<const void> owner;

  TokenId size() const { return static_cast<TokenId>(texts.size()); }
  // Tokens that ordinary text must never become.
  bool IsReserved(TokenId token) const {
    return kinds[token] == TokenKind::kControl || kinds[token] == TokenKind::kUnknown;
  }
};

// Errors: keys that are missing or of another type, arrays of different lengths, an unknown token
// type, special ids outside the vocabulary. The file may be vocabulary-only.
Result<Vocabulary> ReadVocabulary(std::shared_ptr<const gguf::File> file);

// The byte of a token such as "<0x0A>"; nullopt if the text has another form.
std::optional<uint8_t> ParseByteToken(std::string_view text);

// Checks the vocabulary and makes its tokenizer. Errors: an unknown tokenizer or pre-tokenizer;
// text that is not UTF-8; malformed byte tokens or merges; scores that are NaN. Tokenizer::Load is
// ReadVocabulary followed by this.
Result<std::unique_ptr<Tokenizer>> MakeTokenizer(Vocabulary vocabulary);

}  // namespace winnow::tokenizer
