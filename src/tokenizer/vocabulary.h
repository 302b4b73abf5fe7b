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

// What a file says about its tokenizer. All texts are views; `owner` keeps what they point into
// alive.
struct Vocabulary {
  std::string model;               // "llama", "gpt2"
  std::optional<std::string> pre;  // gpt2 only
  std::string general_name;        // the reference engine has quirks that go by the model's name
  std::vector<std::string_view> texts;   // by token id, the vocabulary's own spelling
  std::vector<TokenKind> kinds;          // by token id
  std::vector<float> scores;             // by token id; llama only
  std::vector<std::string_view> merges;  // "left right", the most important first; gpt2 only
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
  // Tokens that ordinary text must never turn into.
  bool IsReserved(TokenId token) const {
    return kinds[token] == TokenKind::kControl || kinds[token] == TokenKind::kUnknown;
  }
};

// Errors: keys missing or of another type, arrays of different lengths, a type that does not exist,
// special ids outside the vocabulary. The file may be vocabulary-only.
Result<Vocabulary> ReadVocabulary(std::shared_ptr<const gguf::File> file);

// The byte that a token such as "<0x0A>" stands for; nullopt if it is not spelled so.
std::optional<uint8_t> ParseByteToken(std::string_view text);

// Errors: an unknown tokenizer or pre-tokenizer, and everything that is wrong inside the
// vocabulary: text that is not UTF-8, malformed byte tokens and merges, scores that are not
// numbers. Tokenizer::Load is ReadVocabulary, then this.
Result<std::unique_ptr<Tokenizer>> MakeTokenizer(Vocabulary vocabulary);

}  // namespace winnow::tokenizer
