#pragma once

#include <algorithm>
#include <bit>
#include <cstdint>
#include <string_view>
#include <vector>

#include "tokenizer/string_index.h"
#include "tokenizer/tokenizer.h"

namespace winnow::tokenizer {

// Caches, during one Encode call, the tokens of each piece of text, because words repeat. It stores
// no tokens but points at those already in the output. As it lives for one call only, it needs no
// lock, and its size is bounded.
class PieceCache {
 public:
  // Enough slots for a text of this many bytes, 1.5 MiB at most.
  explicit PieceCache(size_t text_bytes)
      : slots_(std::bit_ceil(std::clamp<size_t>(text_bytes / 16, 16, kMaxSlots))) {}

  // Appends the tokens of `piece` to `out` if they are known. Otherwise returns false; the caller
  // then appends them itself and calls Note with the size `out` had before. `piece` must lie in
  // `buffer`, and `buffer` and `out` must only grow between calls.
  bool Repeat(std::string_view piece, std::string_view buffer, std::vector<TokenId>& out) {
    if (piece.size() > kMaxPieceBytes) return false;
    Slot& slot = FindSlot(piece);
    if (slot.length != piece.size() || buffer.substr(slot.begin, slot.length) != piece)
      return false;
    const size_t n = out.size();
    out.resize(n + slot.n_tokens);
    std::copy_n(out.begin() + slot.first_token, slot.n_tokens,
                out.begin() + static_cast<ptrdiff_t>(n));
    return true;
  }

  void Note(std::string_view piece, std::string_view buffer, size_t first_token, size_t n_tokens) {
    if (piece.size() > kMaxPieceBytes) return;
    FindSlot(piece) = {.begin = static_cast<uint32_t>(piece.data() - buffer.data()),
                       .first_token = static_cast<uint32_t>(first_token),
                       .length = static_cast<uint16_t>(piece.size()),
                       .n_tokens = static_cast<uint16_t>(n_tokens)};
  }

 private:
  // Longer pieces rarely repeat.
  static constexpr size_t kMaxPieceBytes = 64;
  static constexpr size_t kMaxSlots = size_t{1} << 17;
  struct Slot {
    uint32_t begin = 0;
    uint32_t first_token = 0;
    uint16_t length = 0;  // 0: free
    uint16_t n_tokens = 0;
  };

  // Without a random seed: a piece that collides replaces another one and is merged anew.
  Slot& FindSlot(std::string_view piece) {
    return slots_[HashBytes(piece, 0) & (slots_.size() - 1)];
  }

  std::vector<Slot> slots_;
};

}  // namespace winnow::tokenizer
