#pragma once

#include <cstdint>
#include <vector>

#include "cache/cache.h"
#include "runtime/budget/memory_plan.h"

// What plans need to know about a cache, read from it.
namespace winnow::runtime {

// Independent of the cache's contents.
struct CacheFacts {
  CacheCost cost;
  int64_t capacity = 0;  // slots per KV head
  cache::PositionMode positions = cache::PositionMode::kOriginal;
  int64_t list_bytes_per_slot = 0;  // Cache::max_list_bytes_per_slot
};
CacheFacts ReadFacts(const cache::Cache& cache);

struct CacheContents {
  std::vector<Entries> layers;  // [CacheCost::n_layers]
  int64_t longest_head = 0;     // slots
  int64_t live_bytes = 0;
};
// Reuses the memory of `contents`.
void ReadContents(const cache::Cache& cache, CacheContents& contents);

}  // namespace winnow::runtime
