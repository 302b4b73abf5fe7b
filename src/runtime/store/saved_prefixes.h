#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "runtime/scheduler/scheduler_types.h"
#include "runtime/session/session.h"

namespace winnow::runtime {

// Whether sessions with these options would have the same cache for the same text.
bool SameCache(const SessionOptions& a, const SessionOptions& b);

// The part of a prompt that need not be read.
struct PrefixMatch {
  int64_t n_tokens = 0;
  PrefixReuse reuse = PrefixReuse::kNone;
};
// What decides whether a prompt can continue a session's text.
struct TextLength {
  int64_t n_tokens = 0;
  int64_t n_common = 0;  // length of the common prefix with the prompt
  bool has_logits = false;
};
// The prefix that can be reused: any part of an uncompressed text, only all of a compressed one.
// `across_questions`: Request::reuse_across_questions.
PrefixMatch MatchPrefix(const SessionOptions& options, const TextLength& text, int64_t n_prompt,
                        bool across_questions);

// Finds the saved session that a prompt can continue from. Only hashes of each text are kept: of
// its first kBlock tokens, of the first 2 kBlock, and so on, and of all.
class SavedPrefixes {
 public:
  static constexpr int64_t kBlock = 64;

  // Sets the text of a file.
  void Set(const std::string& file, const SessionOptions& options, std::span<const TokenId> tokens,
           bool has_logits);
  void Erase(const std::string& file) { texts_.erase(file); }

  struct Found {
    std::string file = {};  // empty: no match
    PrefixMatch match = {};
  };
  // The file with the longest match that has at least n_wanted tokens and is not a small part of
  // its text.
  Found Find(std::span<const TokenId> prompt, const SessionOptions& options, bool across_questions,
             int64_t n_wanted) const;

 private:
  struct Text {
    SessionOptions options = {};
    int64_t n_tokens = 0;
    bool has_logits = false;
    std::vector<uint64_t> hashes = {};  // [block], the last one may be shorter
  };
  std::map<std::string, Text> texts_;
};

}  // namespace winnow::runtime
