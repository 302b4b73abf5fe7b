#pragma once

#include <cstdint>
#include <vector>

namespace winnow::cache {

using Slot = int32_t;      // place in the cache
using Position = int32_t;  // place in the text

// What a method decides about one KV head. Plain data: printed, compared, replayed.
struct HeadPlan {
  // Slots that stay, in text order (oldest first). Everything else is evicted.
  std::vector<Slot> keep;
  bool operator==(const HeadPlan&) const = default;
};

// A decision for one layer, one entry per KV head.
struct Plan {
  int layer = 0;
  std::vector<HeadPlan> heads;
  bool operator==(const Plan&) const = default;
};

}  // namespace winnow::cache
