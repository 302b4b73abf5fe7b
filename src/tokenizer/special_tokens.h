#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "tokenizer/tokenizer.h"

namespace winnow::tokenizer {

// A stretch of ordinary text, or a special token that was written in the text.
struct Fragment {
  std::string_view text;
  TokenId token = -1;  // -1: ordinary text

  bool is_token() const { return token >= 0; }
  bool operator==(const Fragment&) const = default;
};

// Finds tokens that are written out literally in a text.
class SpecialTokens {
 public:
  struct Entry {
    std::string_view text;
    TokenId token = -1;
    // White space behind the token belongs to it and is dropped.
    bool takes_space_behind = false;
  };

  SpecialTokens() = default;
  // Entries with empty text are ignored; of several with the same text the last counts.
  explicit SpecialTokens(std::vector<Entry> entries);

  // Cuts `text` at the special tokens in it. Longer tokens go first: one that overlaps a longer one
  // is not found, even if it begins earlier; of equals the leftmost goes first. Fragments of text
  // are not empty. Cost: O(length of text) unless the text is full of special tokens.
  std::vector<Fragment> Partition(std::string_view text) const;

 private:
  struct Match {
    size_t begin = 0;
    const Entry* entry = nullptr;
  };

  // The longest entry at the start of `text` with at most `limit` bytes; null if there is none.
  const Entry* LongestAt(std::string_view text, size_t limit) const;
  std::vector<Match> FindMatches(std::string_view text) const;

  std::vector<Entry> entries_;  // sorted by text
  // entries_[first_[b], first_[b + 1]) begin with byte b.
  std::vector<uint32_t> first_;
  size_t longest_ = 0;
};

}  // namespace winnow::tokenizer
