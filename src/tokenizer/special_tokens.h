#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "tokenizer/tokenizer.h"

namespace winnow::tokenizer {

// A piece of ordinary text, or a special token found in the text.
struct Fragment {
  std::string_view text;
  TokenId token = -1;  // -1: ordinary text

  bool is_token() const { return token >= 0; }
  bool operator==(const Fragment&) const = default;
};

// Bytes [begin, end) of a text.
struct Range {
  size_t begin = 0;
  size_t end = 0;
};

// Finds special tokens that are written literally in a text.
class SpecialTokens {
 public:
  struct Entry {
    std::string_view text;
    TokenId token = -1;
    // Also recognized in plain text.
    bool in_plain_text = false;
    // White space that follows the token is dropped.
    bool strips_space_after = false;
  };

  SpecialTokens() = default;
  // Entries with empty text are ignored; among equal texts the last one counts.
  explicit SpecialTokens(std::vector<Entry> entries);

  // Splits `text` at the special tokens in it. Longer tokens are matched first: a token that
  // overlaps a longer one is not found, even if it begins earlier; among equal lengths the leftmost
  // is matched first. Fragments of text are not empty.
  //   plain  ranges of the text, in order, not overlapping. A token that overlaps one, even in
  //   part,
  //          is matched only if it is `in_plain_text`.
  // Cost: O(length of text) unless the text is full of special tokens.
  std::vector<Fragment> Partition(std::string_view text, std::span<const Range> plain) const;

 private:
  struct Match {
    size_t begin = 0;
    const Entry* entry = nullptr;
  };

  // A special token found at `begin`. If it overlaps a match, only shorter tokens are tried there.
  struct Candidate {
    size_t begin = 0;
    size_t marked_bytes = 0;  // bytes from here to the next plain range
    const Entry* entry = nullptr;

    size_t end() const { return begin + entry->text.size(); }
  };

  // The longest entry at the start of `text` with at most text.size() bytes, and at most
  // `marked_bytes` unless it is allowed in plain text; null if there is none.
  const Entry* LongestAt(std::string_view text, size_t marked_bytes) const;
  std::vector<Candidate> FindAll(std::string_view text, std::span<const Range> plain) const;
  std::vector<Candidate> WithoutOverlaps(std::string_view text,
                                         std::vector<Candidate> candidates) const;

  std::vector<Entry> entries_;  // sorted by text
  // The entries [first_[b], first_[b + 1]) begin with byte b.
  std::vector<uint32_t> first_;
  size_t longest_ = 0;
};

}  // namespace winnow::tokenizer
