#include "runtime/budget/cache_facts.h"

#include <algorithm>

namespace winnow::runtime {
namespace {

CacheCost MakeCost(const cache::Cache& cache) {
  const cache::CacheConfig& config = cache.config();
  // If layers differ, there is no method and every head holds every token: count one head whose
  // rows are as large as a token's rows in all layers.
  if (!config.shape.alike()) {
    return {.n_layers = 1, .n_kv_heads = 1, .row_bytes = cache.bytes_per_token()};
  }
  const int64_t n_numbers =
      config.shape.n_layers * (config.state.n_layer_numbers +
                               int64_t{config.state.n_head_numbers} * config.shape.n_kv_heads);
  return {.n_layers = config.shape.n_layers,
          .n_kv_heads = config.shape.n_kv_heads,
          .row_bytes = cache.bytes_per_slot(0),
          .slot_bytes = cache.state_bytes_per_slot(),
          .fixed_bytes = static_cast<int64_t>(sizeof(double)) * n_numbers};
}

}  // namespace

CacheFacts ReadFacts(const cache::Cache& cache) {
  return {.cost = MakeCost(cache),
          .capacity = cache.capacity(),
          .positions = cache.config().storage.positions,
          .list_bytes_per_slot = cache.max_list_bytes_per_slot()};
}

void ReadContents(const cache::Cache& cache, CacheContents& contents) {
  const cache::CacheShape& shape = cache.config().shape;
  contents.layers.assign(static_cast<size_t>(shape.n_layers), {});
  contents.longest_head = 0;
  for (int layer = 0; layer < shape.n_layers; ++layer) {
    Entries& held = contents.layers[static_cast<size_t>(layer)];
    for (int head = 0; head < shape.layer(layer).n_kv_heads; ++head) {
      const int64_t n_slots = cache.n_slots(layer, head);
      held.slots += n_slots;
      held.rows += cache.n_rows(layer, head);
      contents.longest_head = std::max(contents.longest_head, n_slots);
    }
  }
  if (!shape.alike()) {  // as MakeCost
    contents.layers.assign(1, {.slots = cache.n_slots(0, 0), .rows = cache.n_rows(0, 0)});
  }
  contents.live_bytes = cache.live_bytes();
}

}  // namespace winnow::runtime
