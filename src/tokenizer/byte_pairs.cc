#include <algorithm>
#include <array>
#include <unordered_map>
#include <utility>

#include "gguf/printable.h"
#include "tokenizer/algorithm.h"
#include "tokenizer/byte_alphabet.h"
#include "tokenizer/merge.h"
#include "tokenizer/merge_chunks.h"
#include "tokenizer/pair_table.h"
#include "tokenizer/piece_cache.h"
#include "tokenizer/pre_tokenizer.h"

namespace winnow::tokenizer {
namespace {

// Hashes with a random seed, which std::hash lacks.
struct SeededHash {
  uint64_t seed = RandomSeed();
  size_t operator()(std::string_view text) const { return HashBytes(text, seed); }
};

class BytePairs final : public Algorithm {
 public:
  static Result<std::unique_ptr<Algorithm>> Make(const AlgorithmInput& input,
                                                 std::string_view pre) {
    WINNOW_ASSIGN(PreTokenizer pre_tokenizer, PreTokenizer::Make(pre));
    std::unique_ptr<BytePairs> result(new BytePairs(input, std::move(pre_tokenizer)));
    WINNOW_TRY(result->ReadMerges());
    if (const int n_missing = result->CountMissingBytes(); n_missing > 0) {
      input.warnings.push_back("tokenizer: the vocabulary lacks a token for " +
                               std::to_string(n_missing) +
                               " of the bytes that text is made of: they will be left out");
    }
    return std::unique_ptr<Algorithm>(std::move(result));
  }

  void Encode(std::span<const Fragment> fragments, TextStart,
              std::vector<TokenId>& out) const override {
    Scratch scratch;
    if (fragments.empty()) return;
    // All fragments lie in one text; the cache stores offsets in it.
    const char* begin = fragments.front().text.data();
    const std::string_view last = fragments.back().text;
    const std::string_view text(begin, static_cast<size_t>(last.data() + last.size() - begin));
    PieceCache cache(text.size());
    for (const Fragment& fragment : fragments) {
      if (fragment.is_token()) {
        out.push_back(fragment.token);
        continue;
      }
      for (std::string_view piece : pre_tokenizer_.Split(fragment.text)) {
        if (cache.Repeat(piece, text, out)) continue;
        const size_t n = out.size();
        EncodePiece(piece, scratch, out);
        cache.Note(piece, text, n, out.size() - n);
      }
    }
  }

  std::string Bytes(TokenId token) const override {
    return BytesOfCharacters(vocabulary_.texts[token]);
  }

  bool adds_space() const override { return false; }

 private:
  struct Scratch {
    MergeScratch merge;
    std::string characters;
  };

  BytePairs(const AlgorithmInput& input, PreTokenizer pre_tokenizer)
      : vocabulary_(input.vocabulary),
        index_(input.index),
        pre_tokenizer_(std::move(pre_tokenizer)),
        merges_(input.vocabulary.merges.size()) {
    for (int byte = 0; byte < 256; ++byte) {
      byte_symbols_[byte] = FindSymbol(CharacterOfByte(static_cast<uint8_t>(byte)));
    }
    for (const std::string_view text : vocabulary_.texts) {
      longest_token_ = std::max(longest_token_, text.size());
    }
  }

  Result<void> ReadMerges() {
    std::string merged;
    for (size_t rank = 0; rank < vocabulary_.merges.size(); ++rank) {
      const std::string_view merge = vocabulary_.merges[rank];
      const size_t space = merge.find(' ', 1);
      if (space == std::string_view::npos || space + 1 == merge.size()) {
        return Error{"tokenizer: tokenizer.ggml.merges: entry " + std::to_string(rank) + " is '" +
                     gguf::Printable(merge) + "', expected two parts with a space between"};
      }
      merged = merge.substr(0, space);
      merged += merge.substr(space + 1);
      const int32_t left = FindSymbol(merge.substr(0, space));
      const int32_t right = FindSymbol(merge.substr(space + 1));
      merges_.Add(left, right, {.priority = static_cast<uint32_t>(rank), .id = FindSymbol(merged)});
    }
    return {};
  }

  // Number of bytes of ordinary text without a token. Does not count bytes that Falcon's vocabulary
  // lacks: control characters, bytes that UTF-8 never contains, and lead bytes of planes 4 to 11,
  // which are unassigned.
  int CountMissingBytes() const {
    int n_missing = 0;
    for (int byte = 0; byte < 0xF5; ++byte) {
      const bool control =
          byte == 0x7F || (byte < ' ' && byte != '\t' && byte != '\n' && byte != '\r');
      const bool unused = byte == 0xC0 || byte == 0xC1 || byte == 0xF1 || byte == 0xF2;
      if (!control && !unused) n_missing += SymbolToken(byte_symbols_[byte]) < 0;
    }
    return n_missing;
  }

  // Numbers the symbols of merges: a token has its id; a string that is no token gets the next
  // number after all ids.
  int32_t FindSymbol(std::string_view characters) {
    if (const TokenId token = Find(characters); token >= 0) return token;
    const auto next = static_cast<int32_t>(vocabulary_.texts.size() + other_symbols_.size());
    return other_symbols_.emplace(std::string(characters), next).first->second;
  }

  // The token of a symbol, or -1.
  TokenId SymbolToken(int32_t symbol) const { return symbol < vocabulary_.size() ? symbol : -1; }

  // The token with this spelling that ordinary text may become, or -1.
  TokenId Find(std::string_view characters) const {
    const TokenId token = index_.Find(characters);
    return token >= 0 && !vocabulary_.IsReserved(token) ? token : -1;
  }

  void EncodePiece(std::string_view piece, Scratch& scratch, std::vector<TokenId>& out) const {
    if (pre_tokenizer_.takes_whole_pieces() && piece.size() <= longest_token_) {
      scratch.characters.clear();
      for (char byte : piece) scratch.characters += CharacterOfByte(static_cast<uint8_t>(byte));
      if (const TokenId whole = Find(scratch.characters); whole >= 0) {
        out.push_back(whole);
        return;
      }
    }
    const auto rule = [&](const Symbol& left, const Symbol& right) {
      return merges_.Find(left.id, right.id);
    };
    const auto emit = [&](const Symbol& symbol) { EmitSymbol(piece, symbol, out); };
    const auto make = [&](size_t begin, size_t end, std::vector<Symbol>& symbols) {
      MakeSymbols(piece, begin, end, symbols);
    };
    MergeText(piece.size(), scratch.merge, make, rule, emit, out);
  }

  // Makes one symbol for each byte of [begin, end).
  void MakeSymbols(std::string_view piece, size_t begin, size_t end,
                   std::vector<Symbol>& symbols) const {
    const size_t n = end - begin;
    symbols.resize(n);
    for (size_t i = 0; i < n; ++i) {
      const auto place = static_cast<int32_t>(i);
      symbols[i] = {.begin = static_cast<uint32_t>(begin + i),
                    .length = 1,
                    .previous = place - 1,
                    .next = i + 1 < n ? place + 1 : -1,
                    .id = byte_symbols_[static_cast<uint8_t>(piece[begin + i])]};
    }
  }

  void EmitSymbol(std::string_view piece, const Symbol& symbol, std::vector<TokenId>& out) const {
    if (const TokenId token = SymbolToken(symbol.id); token >= 0) {
      out.push_back(token);
      return;
    }
    // Merges may end in a string that is no token; its bytes are then emitted as byte tokens. A
    // byte without a token is dropped, as in llama.cpp.
    for (char byte : piece.substr(symbol.begin, symbol.length)) {
      const TokenId token = SymbolToken(byte_symbols_[static_cast<uint8_t>(byte)]);
      if (token >= 0) out.push_back(token);
    }
  }

  const Vocabulary& vocabulary_;
  const StringIndex& index_;
  PreTokenizer pre_tokenizer_;
  PairTable merges_;
  size_t longest_token_ = 0;  // longest spelling in bytes: a longer piece is no token
  std::unordered_map<std::string, int32_t, SeededHash> other_symbols_;
  std::array<int32_t, 256> byte_symbols_;
};

}  // namespace

Result<std::unique_ptr<Algorithm>> MakeBytePairs(const AlgorithmInput& input,
                                                 std::string_view pre) {
  return BytePairs::Make(input, pre);
}

}  // namespace winnow::tokenizer
