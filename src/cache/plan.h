#pragma once

#include <cstdint>
#include <vector>

namespace winnow::cache {

using Slot = int32_t;      // place in the cache
using Position = int32_t;  // place in the text

// What a method decides about one KV head, in the slots as they are before the plan is carried out.
// Plain data: printed, compared, replayed. An empty plan changes nothing.
struct HeadPlan {
  // Slots that go, each once, in any order. Everything else stays.
  std::vector<Slot> evict;

  // New keys and values of rows that stay, as weighted sums of rows as they were: done first.
  struct Source {
    Slot row = 0;
    float key_weight = 0;
    float value_weight = 0;
    bool operator==(const Source&) const = default;
  };
  struct Merge {
    Slot into = 0;  // a row; without shared rows: a slot
    int n_sources = 0;
    bool operator==(const Merge&) const = default;
  };
  std::vector<Merge> merges;
  std::vector<Source>
      sources;  // of all merges, one after another; `into` is named if it takes part

  // Only for caches with shared rows (EMS): the slot is from now on stored in `row`, its key
  // multiplied by `factor`. Rows that no slot names any more are freed.
  struct Share {
    Slot slot = 0;
    Slot row = 0;
    float factor = 1;
    bool operator==(const Share&) const = default;
  };
  std::vector<Share> shares;

  // Only for caches with biases (StoragePolicy::bias_column): what attention adds to the scores of
  // a slot from now on.
  struct Bias {
    Slot slot = 0;
    float bias = 0;
    bool operator==(const Bias&) const = default;
  };
  std::vector<Bias> biases;

  // Values written anew, after the merges: `new_values` holds a row of value_dim for each slot of
  // `rewrite`. Not for caches with shared rows.
  std::vector<Slot> rewrite;
  std::vector<float> new_values;

  void Clear() {
    evict.clear();
    merges.clear();
    sources.clear();
    shares.clear();
    biases.clear();
    rewrite.clear();
    new_values.clear();
  }
  bool empty() const {
    return evict.empty() && merges.empty() && shares.empty() && biases.empty() && rewrite.empty();
  }
  bool operator==(const HeadPlan&) const = default;
};

// A decision for one layer, one entry per KV head.
struct Plan {
  int layer = 0;
  std::vector<HeadPlan> heads;
  bool operator==(const Plan&) const = default;
};

}  // namespace winnow::cache
