#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "compression/parts.h"

namespace winnow::compression::select {

// The entries of one KV head that may be evicted, with their scores, oldest first.
struct ScoredHead {
  int layer = 0;
  int kv_head = 0;
  Region region;
  std::vector<double> scores;  // [region.size()]
};

// Keeps the best `n_keep` of all these entries together. Among equal scores the newer in the text
// stays, then that of the earlier head in `heads`. Adds a plan for each run of heads of one layer
// that has something to evict. For heads of one layer, or of all layers (one budget for the model).
void KeepBest(const LayerCall& call, std::span<const ScoredHead> heads, int64_t n_keep,
              PlanList& plans);

}  // namespace winnow::compression::select
