#include <algorithm>
#include <array>
#include <bitset>
#include <cmath>
#include <optional>
#include <utility>

#include "gguf/printable.h"
#include "tokenizer/algorithm.h"
#include "tokenizer/merge.h"
#include "tokenizer/merge_chunks.h"
#include "tokenizer/piece_cache.h"
#include "tokenizer/utf8.h"

namespace winnow::tokenizer {
namespace {

constexpr std::string_view kSpace = "\xE2\x96\x81";  // U+2581 represents a space in the vocabulary

// Appends `text` with each space replaced by U+2581.
void AppendEscaped(std::string_view text, std::string& out) {
  size_t at = 0;
  while (at < text.size()) {
    const size_t space = text.find(' ', at);
    out += text.substr(at, space - at);
    if (space == std::string_view::npos) return;
    out += kSpace;
    at = space + 1;
  }
}

class SentencePiece final : public Algorithm {
 public:
  explicit SentencePiece(const AlgorithmInput& input)
      : vocabulary_(input.vocabulary),
        index_(input.index),
        adds_space_(input.vocabulary.add_space_prefix.value_or(true)) {
    byte_tokens_.fill(vocabulary_.unknown.value_or(-1));
    for (TokenId token = 0; token < vocabulary_.size(); ++token) {
      const std::string_view text = vocabulary_.texts[token];
      if (vocabulary_.kinds[token] == TokenKind::kByte) byte_tokens_[*ParseByteToken(text)] = token;
      for (size_t at = text.find(kSpace, 1); at != std::string_view::npos;
           at = text.find(kSpace, at + 1)) {
        joined_before_space_.set(static_cast<uint8_t>(text[at - 1]));
      }
    }
  }

  void Encode(std::span<const Fragment> fragments, TextStart start,
              std::vector<TokenId>& out) const override {
    size_t text_bytes = 0;
    for (const Fragment& fragment : fragments) text_bytes += fragment.text.size();
    std::string escaped;
    escaped.reserve(text_bytes + text_bytes / 2);
    PieceCache cache(text_bytes);
    MergeScratch scratch;
    for (const Fragment& fragment : fragments) {
      if (fragment.is_token()) {
        out.push_back(fragment.token);
        continue;
      }
      const size_t begin = escaped.size();
      // A text fragment is either the first fragment or follows a special token, never another text
      // fragment.
      const bool continues = start == TextStart::kContinues && &fragment == fragments.data();
      if (adds_space_ && !continues) escaped += kSpace;
      AppendEscaped(fragment.text, escaped);
      EncodeEscaped(escaped, begin, cache, scratch, out);
    }
  }

  std::string Bytes(TokenId token) const override {
    const std::string_view text = vocabulary_.texts[token];
    if (vocabulary_.kinds[token] == TokenKind::kByte) {
      return std::string(1, static_cast<char>(*ParseByteToken(text)));
    }
    std::string bytes;
    size_t at = 0;
    while (at < text.size()) {
      const size_t space = text.find(kSpace, at);
      bytes += text.substr(at, space - at);
      if (space == std::string_view::npos) break;
      bytes += ' ';
      at = space + kSpace.size();
    }
    return bytes;
  }

  bool adds_space() const override { return adds_space_; }

 private:
  // Encodes buffer[begin, end). Merging never crosses a boundary that lies inside no token. In most
  // vocabularies the boundary before a space is one, so words can be encoded one by one and cached.
  void EncodeEscaped(std::string_view buffer, size_t begin, PieceCache& cache,
                     MergeScratch& scratch, std::vector<TokenId>& out) const {
    while (begin < buffer.size()) {
      size_t end = buffer.find(kSpace, begin + 1);
      while (end != std::string_view::npos &&
             joined_before_space_[static_cast<uint8_t>(buffer[end - 1])]) {
        end = buffer.find(kSpace, end + 1);
      }
      const std::string_view piece = buffer.substr(begin, end - begin);
      begin += piece.size();
      if (cache.Repeat(piece, buffer, out)) continue;
      const size_t n = out.size();
      EncodePiece(piece, scratch, out);
      cache.Note(piece, buffer, n, out.size() - n);
    }
  }

  void EncodePiece(std::string_view piece, MergeScratch& scratch, std::vector<TokenId>& out) const {
    const auto rule = [&](const Symbol& left, const Symbol& right) -> std::optional<Merge> {
      const TokenId token = Find(piece.substr(left.begin, left.length + right.length));
      if (token < 0) return std::nullopt;
      return Merge{.priority = MergePriority(token), .id = token};
    };
    const auto emit = [&](const Symbol& symbol) { EmitSymbol(piece, symbol, out); };
    const auto make = [&](size_t begin, size_t end, std::vector<Symbol>& symbols) {
      MakeSymbols(piece, begin, end, symbols);
    };
    MergeText(piece.size(), scratch, make, rule, emit, out);
  }

  // Makes one symbol per character from `begin` on, up to the first that reaches `end`.
  static void MakeSymbols(std::string_view piece, size_t begin, size_t end,
                          std::vector<Symbol>& symbols) {
    for (size_t at = begin; at < end;) {
      // An invalid byte is a symbol of its own.
      const size_t length = std::max<size_t>(1, CharacterLength(piece.substr(at)));
      const auto place = static_cast<int32_t>(symbols.size());
      const bool last = at + length >= end;
      symbols.push_back({.begin = static_cast<uint32_t>(at),
                         .length = static_cast<uint32_t>(length),
                         .previous = place - 1,
                         .next = last ? -1 : place + 1});
      at += length;
    }
  }

  void EmitSymbol(std::string_view piece, const Symbol& symbol, std::vector<TokenId>& out) const {
    const std::string_view text = piece.substr(symbol.begin, symbol.length);
    const TokenId token = symbol.id >= 0 ? symbol.id : Find(text);
    if (token >= 0) {
      out.push_back(token);
      return;
    }
    for (char byte : text) {
      if (const TokenId of_byte = byte_tokens_[static_cast<uint8_t>(byte)]; of_byte >= 0) {
        out.push_back(of_byte);
      }
    }
  }

  // The token with this spelling that ordinary text may become, or -1.
  TokenId Find(std::string_view text) const {
    const TokenId token = index_.Find(text);
    return token >= 0 && !vocabulary_.IsReserved(token) ? token : -1;
  }

  uint32_t MergePriority(TokenId token) const {
    return PriorityOfScore(vocabulary_.scores.empty() ? 0.0f : vocabulary_.scores[token]);
  }

  const Vocabulary& vocabulary_;
  const StringIndex& index_;
  bool adds_space_;
  std::array<TokenId, 256> byte_tokens_;  // if missing, the unknown token; -1: dropped
  // Bytes that are followed by a space inside some token.
  std::bitset<256> joined_before_space_;
};

}  // namespace

Result<std::unique_ptr<Algorithm>> MakeSentencePiece(const AlgorithmInput& input) {
  const Vocabulary& vocabulary = input.vocabulary;
  for (size_t i = 0; i < vocabulary.scores.size(); ++i) {
    if (std::isnan(vocabulary.scores[i])) {
      return Error{"tokenizer: tokenizer.ggml.scores: entry " + std::to_string(i) +
                   " is not a number"};
    }
  }
  if (vocabulary.scores.empty()) {
    input.warnings.push_back(
        "tokenizer: tokenizer.ggml.scores is missing: all tokens count as equally likely, "
        "tokenization will be poor");
  }
  int n_bytes = 0;
  for (TokenId token = 0; token < vocabulary.size(); ++token) {
    if (vocabulary.kinds[token] != TokenKind::kByte) continue;
    ++n_bytes;
    if (!ParseByteToken(vocabulary.texts[token])) {
      return Error{"tokenizer: tokenizer.ggml.tokens: entry " + std::to_string(token) +
                   " is a byte token spelled '" + gguf::Printable(vocabulary.texts[token]) +
                   "', expected <0x00> to <0xFF>"};
    }
  }
  if (n_bytes < 256) {
    input.warnings.push_back(
        "tokenizer: the vocabulary has " + std::to_string(n_bytes) +
        " byte tokens, expected 256: characters it does not know cannot be encoded");
  }
  return std::unique_ptr<Algorithm>(std::make_unique<SentencePiece>(input));
}

}  // namespace winnow::tokenizer
