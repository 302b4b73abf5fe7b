#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/check.h"
#include "cache/cache.h"
#include "cache/moves.h"

// What a cache is made of: for the files that implement cache.h.
namespace winnow::cache {

// Tokens after which it is worth asking whether large pages have filled up.
constexpr int64_t kSettleAfter = 256;

// The host's knowledge about one KV head.
struct HeadIndex {
  std::vector<Position> positions;           // [slot]
  std::vector<Slot> order;                   // [rank]
  std::vector<int32_t> ranks;                // [slot], its place in `order`
  std::vector<Slot> rows;                    // [slot], with shared rows
  std::vector<float> factors;                // [slot], with shared rows
  std::vector<int32_t> n_sharing;            // [row], slots that name it; with shared rows
  std::vector<std::vector<double>> columns;  // [column][slot]
  std::vector<double> numbers;
  std::vector<int32_t> distances;  // [slot], of the next attention, with capped positions

  size_t n_slots() const { return positions.size(); }
  // Memory beyond what there is goes back.
  void GiveBack() {
    positions.shrink_to_fit();
    order.shrink_to_fit();
    ranks.shrink_to_fit();
    rows.shrink_to_fit();
    factors.shrink_to_fit();
    n_sharing.shrink_to_fit();
    for (std::vector<double>& column : columns) column.shrink_to_fit();
    distances.clear();
    distances.shrink_to_fit();
  }
  // Position of the oldest entry; `none` if there is no entry.
  Position Oldest(Position none) const {
    return order.empty() ? none : positions[static_cast<size_t>(order[0])];
  }
};

struct LayerData {
  std::vector<kernels::HeadStore> stores;     // [kv_head]; n_slots counts stored rows
  std::vector<HeadIndex> heads;               // [kv_head]
  std::vector<kernels::HeadEntries> entries;  // [kv_head], made when asked for
  std::vector<double> numbers;
  std::vector<int64_t> rooms;  // [kv_head], rows that fit while gathered
  bool keys_rotated = true;
  bool rows_are_slots =
      true;  // row i is slot i, with factor 1; until something is evicted or shared
};

struct Cache::Data {
  kernels::Backend* backend = nullptr;
  CacheConfig config;
  int64_t key_row_bytes = 0;
  int64_t value_row_bytes = 0;
  int64_t key_region_bytes = 0;  // of one KV head
  int64_t value_region_bytes = 0;
  std::unique_ptr<kernels::Storage> memory;  // [layer]: keys [kv_head], values [kv_head]
  std::vector<LayerData> layers;
  int64_t n_unsettled = 0;  // appended since the last Settle

  // Rows one after another (gather.cc), behind all regions of `memory`.
  int64_t gathering_offset = 0;
  int64_t gathering_bytes = 0;  // 0: never
  bool gathered = false;
  bool shrunk = false;    // much was evicted since the rows were gathered or all was cleared
  bool outgrown = false;  // since the last prompt gathered rows had to go back while generating

  // Working memory of Append and Apply, kept so that a decode step allocates nothing.
  std::vector<int64_t> first_slot;
  Moves slot_moves, row_moves;
  std::vector<int32_t> dropped_rows, sources;
  std::vector<float> key_weights, value_weights;
  std::vector<kernels::RowSum> key_sums, value_sums;
  std::vector<kernels::ByteRange> used;

  LayerData& layer(int index) {
    WINNOW_CHECK(index >= 0 && index < config.shape.n_layers);
    return layers[static_cast<size_t>(index)];
  }
  HeadIndex& head(int layer_index, int kv_head) {
    LayerData& l = layer(layer_index);
    WINNOW_CHECK(kv_head >= 0 && static_cast<size_t>(kv_head) < l.heads.size());
    return l.heads[static_cast<size_t>(kv_head)];
  }

  kernels::HeadRows Keys(LayerData& l, size_t head) const {
    return {memory.get(), l.stores[head].keys_offset_bytes, config.shape.key_dim, config.key_type};
  }
  kernels::HeadRows Values(LayerData& l, size_t head) const {
    return {memory.get(), l.stores[head].values_offset_bytes, config.shape.value_dim,
            config.value_type};
  }

  Result<void> Allocate();
  void Settle();
  // Before a call adds n entries to every layer: gathers the rows where that pays.
  void Arrange(int64_t n);
  // Before n entries are added to a layer: all rows go back to their regions if they do not fit.
  void MakeRoom(const LayerData& layer, int64_t n);
  bool PaysToGather() const;
  void Gather(bool written);
  void Spread();
  int64_t GatheredBytes() const;
  kernels::HeadStore OwnRegion(int64_t layer, int64_t head) const;
  void MoveTo(const kernels::HeadStore& to, kernels::HeadStore& store);
  void Merge(LayerData& layer, size_t head, const HeadPlan& plan);
  void Evict(LayerData& layer, size_t head, std::span<const Slot> slots);
  void LeaveRow(HeadIndex& index, Slot slot);
  void FreeRows(LayerData& layer, size_t head);
  void MoveRows(LayerData& layer, size_t head, const Moves& moves);
  void ShrinkRows(LayerData& layer, size_t head, int64_t n_rows);
  void PrepareEntries(LayerData& layer, int64_t n_queries);
  int64_t LiveBytes(const LayerData& layer, size_t head) const;
};

}  // namespace winnow::cache
