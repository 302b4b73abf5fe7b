#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "runtime/scheduler/scheduler_types.h"
#include "runtime/session/session.h"

namespace winnow::runtime {

// Whether two sessions would have the same cache.
bool SameCache(const SessionOptions& a, const SessionOptions& b);

// What of a prompt need not be read.
struct PrefixMatch {
  int64_t n_tokens = 0;
  PrefixReuse reuse = PrefixReuse::kNone;
};
// A session's text, as far as it decides what a prompt can go on from.
struct TextLength {
  int64_t n_tokens = 0;
  int64_t n_common = 0;  // with the prompt
  bool has_logits = false;
};
// Any part of what was not compressed, all of what was. `across_questions`:
// Request::reuse_across_questions.
PrefixMatch MatchPrefix(const SessionOptions& options, const TextLength& text, int64_t n_prompt,
                        bool across_questions);

// Which saved sessions a prompt can go on from. Of each text there are hashes only: of its first
// kBlock tokens, of the first 2 kBlock, and so on, and of all.
class SavedPrefixes {
 public:
  static constexpr int64_t kBlock = 64;

  // Of a file as it is now.
  void Set(const std::string& file, const SessionOptions& options, std::span<const TokenId> tokens,
           bool has_logits);
  void Erase(const std::string& file) { texts_.erase(file); }

  struct Found {
    std::string file = {};  // empty: none is worth it
    PrefixMatch match = {};
  };
  // The one with the longest match of at least n_wanted tokens that is no small part of its text.
  Found Find(std::span<const TokenId> prompt, const SessionOptions& options, bool across_questions,
             int64_t n_wanted) const;

 private:
  struct Text {
    SessionOptions options = {};
    int64_t n_tokens = 0;
    bool has_logits = false;
    std::vector<uint64_t> hashes = {};  // [blocks, the last one perhaps shorter]
  };
  std::map<std::string, Text> texts_;
};

}  // namespace winnow::runtime
