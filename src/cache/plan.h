#pragma once

#include <cstdint>
#include <vector>

namespace winnow::cache {

using Slot = int32_t;      // place in the cache
using Position = int32_t;  // place in the text

// A method's decision about one KV head. Slots are those before the plan is carried out. Plain
// data, to print, compare and replay. An empty plan changes nothing.
struct HeadPlan {
  // Slots to evict, each once, in any order. All others stay.
  std::vector<Slot> evict;

  // New keys and values of rows that stay, as weighted sums of the old rows. Done first.
  struct Source {
    Slot row = 0;
    float key_weight = 0;
    float value_weight = 0;
    bool operator==(const Source&) const = default;
  };
  struct Merge {
    Slot into = 0;  // a row; without shared rows, a slot
    int n_sources = 0;
    bool operator==(const Merge&) const = default;
  };
  std::vector<Merge> merges;
  std::vector<Source>
      sources;  // of all merges, one after another; `into` is listed if it contributes

  // Only for caches with shared rows (EMS): the slot is stored in `row` from now on, with its key
  // multiplied by `factor`. Rows without slots are freed.
  struct Share {
    Slot slot = 0;
    Slot row = 0;
    float factor = 1;
    bool operator==(const Share&) const = default;
  };
  std::vector<Share> shares;

  // Only for caches with biases (StoragePolicy::bias_column): attention adds `bias` to the scores
  // of the slot from now on.
  struct Bias {
    Slot slot = 0;
    float bias = 0;
    bool operator==(const Bias&) const = default;
  };
  std::vector<Bias> biases;

  // Replaces values, after the merges: `new_values` holds a row of value_dim for each slot of
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

// A method's decision about one layer.
struct Plan {
  int layer = 0;
  std::vector<HeadPlan> heads;
  bool operator==(const Plan&) const = default;
};

}  // namespace winnow::cache
