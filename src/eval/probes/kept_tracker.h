#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "report/page/token_map.h"
#include "runtime/session/session.h"

namespace winnow::eval {

// Follows the plans of one session: when each token was evicted, and whether it was merged.
class KeptTracker {
 public:
  static constexpr int32_t kStays = report::TokenMap::kStays;
  static constexpr int32_t kNeverStored = 0;

  // Options that report every plan to this tracker, which must outlive the session. Requires: the
  // session removes entries only by plans (no Truncate, no Reset).
  runtime::CompressionOptions Following(runtime::CompressionOptions options);

  // Call this when the sequence has `n_tokens` tokens, before the functions below. Separates tokens
  // that never had an entry (PyramidInfer stops computing some in later layers) from those that
  // still have one.
  void Close(const cache::Cache& cache, int64_t n_tokens);

  // The number of tokens in the sequence when token `position` was evicted; kStays if it was not,
  // kNeverStored if it never had an entry.
  int32_t evicted_at(int layer, int kv_head, int64_t position) const;

  // The shape of the cache that was followed; after Close.
  const cache::CacheShape& shape() const { return shape_; }

  // [layer][kv_head][token] evicted_at of the first n_tokens tokens.
  std::vector<std::vector<std::vector<int32_t>>> Evictions(int64_t n_tokens) const;
  // [layer][kv_head] states of the first n_tokens tokens (report::TokenMap).
  std::vector<std::vector<std::string>> States(int64_t n_tokens) const;

 private:
  struct EntryState {
    int32_t evicted_at = kStays;
    bool merged = false;
  };
  // [position]; grows as tokens are evicted.
  using EntryStates = std::vector<EntryState>;

  void Cover(const cache::Cache& cache);
  void Follow(const cache::Plan& plan, const runtime::PlanContext& context);
  static void FollowHead(const cache::HeadPlan& plan, const runtime::PlanContext& context,
                         int layer, int kv_head, EntryStates& fates);
  const EntryStates& HeadFates(int layer, int kv_head) const;

  cache::CacheShape shape_;
  std::vector<EntryStates> fates_;  // [layer * n_kv_heads + kv_head]
};

}  // namespace winnow::eval
