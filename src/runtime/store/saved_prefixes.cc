#include "runtime/store/saved_prefixes.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

#include <algorithm>
#include <utility>

namespace winnow::runtime {
namespace {

// A match must be at least 1 / kMinShare of its text, as the whole file is read for it.
constexpr int64_t kMinShare = 4;

std::string MethodSpec(const CompressionOptions& options) {
  return options.method ? options.method->traits().spec : "";
}

bool Evicts(const CompressionOptions& options) {
  return options.method && options.method->traits().decisions.Evicts();
}

uint64_t HashBlock(std::span<const TokenId> tokens, uint64_t before) {
  return XXH3_64bits_withSeed(tokens.data(), tokens.size_bytes(), before);
}

// [block] Each hash covers the text up to the block's end.
std::vector<uint64_t> HashBlocks(std::span<const TokenId> tokens) {
  std::vector<uint64_t> hashes;
  uint64_t hash = 0;
  while (!tokens.empty()) {
    const size_t n = std::min(tokens.size(), static_cast<size_t>(SavedPrefixes::kBlock));
    hash = HashBlock(tokens.first(n), hash);
    hashes.push_back(hash);
    tokens = tokens.subspan(n);
  }
  return hashes;
}

}  // namespace

bool SameCache(const SessionOptions& a, const SessionOptions& b) {
  return a.context == b.context && a.key_type == b.key_type && a.value_type == b.value_type &&
         MethodSpec(a.compression) == MethodSpec(b.compression) &&
         a.compression.size == b.compression.size && a.compression.ratio == b.compression.ratio &&
         a.compression.memory_bytes == b.compression.memory_bytes &&
         a.compression.quality == b.compression.quality &&
         a.compression.prefill_chunk == b.compression.prefill_chunk;
}

PrefixMatch MatchPrefix(const SessionOptions& options, const TextLength& text, int64_t n_prompt,
                        bool across_questions) {
  int64_t n = text.n_common;
  const bool whole = n == text.n_tokens;
  const bool ready = whole && n == n_prompt && text.has_logits;
  PrefixReuse reuse = PrefixReuse::kExact;
  if (options.compression.method) {
    if (!whole) return {};
    const bool evicts = Evicts(options.compression);
    // If the prompt is exactly the session's text, it asks the same question.
    if (options.compression.method->query_dependent() && evicts && !ready && !across_questions) {
      return {};
    }
    if (n == n_prompt && !ready) return {};
    if (evicts) reuse = PrefixReuse::kCompressed;
  } else if (!ready) {
    n = std::min(n, n_prompt - 1);  // the last token's logits are needed
  }
  return n > 0 ? PrefixMatch{.n_tokens = n, .reuse = reuse} : PrefixMatch{};
}

void SavedPrefixes::Set(const std::string& file, const SessionOptions& options,
                        std::span<const TokenId> tokens, bool has_logits) {
  Text text = {.options = options,
               .n_tokens = std::ssize(tokens),
               .has_logits = has_logits,
               .hashes = HashBlocks(tokens)};
  text.options.on_projections = {};
  texts_[file] = std::move(text);
}

SavedPrefixes::Found SavedPrefixes::Find(std::span<const TokenId> prompt,
                                         const SessionOptions& options, bool across_questions,
                                         int64_t n_wanted) const {
  Found best;
  if (texts_.empty() || std::ssize(prompt) < n_wanted) return best;
  const std::vector<uint64_t> hashes = HashBlocks(prompt);
  for (const auto& [file, text] : texts_) {
    if (text.n_tokens < n_wanted || !SameCache(text.options, options)) continue;
    // Compare whole blocks, then the text's last, shorter block if the prompt has as many tokens.
    const int64_t n_whole = std::min(text.n_tokens, std::ssize(prompt)) / kBlock;
    const auto end = text.hashes.begin() + n_whole;
    const int64_t n_equal =
        std::mismatch(text.hashes.begin(), end, hashes.begin()).first - text.hashes.begin();
    TextLength length = {
        .n_tokens = text.n_tokens, .n_common = n_equal * kBlock, .has_logits = text.has_logits};
    const int64_t n_rest = text.n_tokens - length.n_common;
    if (n_equal == n_whole && n_rest > 0 && n_rest < kBlock &&
        text.n_tokens <= std::ssize(prompt)) {
      const auto rest =
          prompt.subspan(static_cast<size_t>(length.n_common), static_cast<size_t>(n_rest));
      const uint64_t before = n_whole == 0 ? 0 : hashes[static_cast<size_t>(n_whole - 1)];
      if (HashBlock(rest, before) == text.hashes.back()) length.n_common = text.n_tokens;
    }
    const PrefixMatch match =
        MatchPrefix(text.options, length, std::ssize(prompt), across_questions);
    if (match.n_tokens < n_wanted || match.n_tokens * kMinShare < text.n_tokens) continue;
    if (match.n_tokens > best.match.n_tokens) best = {.file = file, .match = match};
  }
  return best;
}

}  // namespace winnow::runtime
