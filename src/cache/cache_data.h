#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/check.h"
#include "cache/cache.h"
#include "cache/index/head_state.h"
#include "cache/index/layer_index.h"
#include "cache/index/list_views.h"
#include "cache/placement/placement.h"

// The data of a cache, for the files that implement cache.h.
namespace winnow::cache {

struct LayerData {
  explicit LayerData(size_t n_heads) : index(n_heads), heads(n_heads) {}

  LayerIndex index;
  std::vector<HeadState> heads;  // [kv_head]
  std::vector<double> numbers;
  bool keys_rotated = true;
  // Row i is slot i with factor 1: true until something is evicted or shared in a cache with shared
  // rows.
  bool rows_are_slots = true;
  bool has_biases = false;  // a plan set the bias of some slot
};

struct Cache::Data {
  Data(const CacheConfig& cache_config, std::unique_ptr<Placement> rows);

  CacheConfig config;
  std::unique_ptr<Placement> placement;
  std::vector<LayerData> layers;
  ListViews views;
  std::vector<kernels::HeadEntries> entries;  // [kv_head], of the layer requested last

  // Buffers of Apply, kept so that a decode step allocates nothing.
  Moves slot_moves, row_moves;
  std::vector<int32_t> ranks, dropped_rows;

  LayerData& layer(int index) {
    WINNOW_CHECK(index >= 0 && index < config.shape.n_layers);
    return layers[static_cast<size_t>(index)];
  }
  HeadState& head(int layer_index, int kv_head) {
    LayerData& l = layer(layer_index);
    WINNOW_CHECK(kv_head >= 0 && static_cast<size_t>(kv_head) < l.heads.size());
    return l.heads[static_cast<size_t>(kv_head)];
  }
  const EntryList& list(int layer_index, int kv_head) {
    LayerData& l = layer(layer_index);
    WINNOW_CHECK(kv_head >= 0 && static_cast<size_t>(kv_head) < l.heads.size());
    return l.index.head(static_cast<size_t>(kv_head));
  }
  // Number of entries of the longest head.
  size_t MaxEntries() const;
  ListViews::Source ViewSource(int layer_index) {
    return {.layer = layer_index, .index = &layer(layer_index).index};
  }

  // Whether any slot of the layer has a bias. Snapshots do not store this.
  bool HasBiases(const LayerData& layer) const;

  // apply.cc
  void EvictFromHead(int layer_index, size_t head, std::span<const Slot> slots);
  void ReleaseRow(HeadState& head, Slot slot);
  void FreeRows(int layer_index, size_t head);
  void TrimWorkingMemory();

  void PrepareEntries(int layer_index, int64_t n_queries);
  int64_t SlotStateBytes() const;
  int64_t LiveBytes(int layer_index, size_t head) const;
};

}  // namespace winnow::cache
