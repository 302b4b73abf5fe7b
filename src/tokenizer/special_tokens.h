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

// Bytes [begin, end) of a text.
struct Range {
  size_t begin = 0;
  size_t end = 0;
};

// Finds tokens that are written out literally in a text.
class SpecialTokens {
 public:
  struct Entry {
    std::string_view text;
    TokenId token = -1;
    // Found even in plain text.
    bool in_plain_text = false;
    // White space behind the token belongs to it and is dropped.
    bool takes_space_behind = false;
  };

  SpecialTokens() = default;
  // Entries with empty text are ignored; of several with the same text the last counts.
  explicit SpecialTokens(std::vector<Entry> entries);

  // Cuts `text` at the special tokens in it. Longer tokens go first: one that overlaps a longer one
  // is not found, even if it begins earlier; of equals the leftmost goes first. Fragments of text
  // are not empty.
  //   plain  places in the text, in order, not overlapping, where only what is `in_plain_text` may
  //   lie, even in part
  // Cost: O(length of text) unless the text is full of special tokens.
  std::vector<Fragment> Partition(std::string_view text, std::span<const Range> plain) const;

 private:
  struct Match {
    size_t begin = 0;
    const Entry* entry = nullptr;
  };

  // A special token found at `begin`. Only shorter ones are of use there if it does not fit between
  // others.
  struct Candidate {
    size_t begin = 0;
    size_t marked_bytes = 0;  // of the text from here on, before the next plain range
    const Entry* entry = nullptr;

    size_t end() const { return begin + entry->text.size(); }
  };

  // The longest entry at the start of `text`, of at most text.size() bytes, and of at most
  // `marked_bytes` unless it is allowed in plain text; null if there is none.
  const Entry* LongestAt(std::string_view text, size_t marked_bytes) const;
  std::vector<Candidate> FindAll(std::string_view text, std::span<const Range> plain) const;
  std::vector<Candidate> WithoutOverlaps(std::string_view text,
                                         std::vector<Candidate> candidates) const;

  std::vector<Entry> entries_;  // sorted by text
  // entries_[first_[b], first_[b + 1]) begin with byte b.
  std::vector<uint32_t> first_;
  size_t longest_ = 0;
};

}  // namespace winnow::tokenizer
