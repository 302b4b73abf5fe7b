#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "cache/cache.h"
#include "cache/index/moves.h"
#include "cache/plan.h"
#include "kernels/ops.h"

namespace winnow::cache {

// Tokens after which to check again whether huge pages have filled.
inline constexpr int64_t kHugePagesAfter = 256;

// Where a sequence's rows of keys and values lie: the storage, its growth, and the pages under it.
// Every head has a region of address space for its whole capacity, committed as it is used. The
// rows of a cache that keeps its size may be gathered instead: placed one after another behind all
// regions, so that they fill huge pages (gather.cc).
class Placement {
 public:
  // Error: memory refused.
  static Result<std::unique_ptr<Placement>> Make(kernels::Backend& backend,
                                                 const CacheConfig& config);

  // As Cache::BeginCall.
  void BeginCall(Phase phase, int64_t n_tokens);
  // Adds a row per token to every head of a layer. Requires: n more rows fit the capacity.
  void Append(int layer, const kernels::Matrix& k, const kernels::Matrix& v);
  // Replaces rows of one head with weighted sums of its old rows.
  void Merge(int layer, size_t head, const HeadPlan& plan);
  // Replaces the values of some rows of a head; `values` has a row of value_dim for each.
  void WriteValues(int layer, size_t head, std::span<const Slot> rows,
                   std::span<const float> values);
  // Moves rows of one head, before Shrink drops the last ones.
  void Move(int layer, size_t head, const Moves& moves);
  // Drops the rows from n_rows on and returns their pages to the system. Returns false if they are
  // so few that the next tokens will use the pages again: they are then kept.
  bool Shrink(int layer, size_t head, int64_t n_rows);
  // Rotates back keys stored after RoPE at `positions` [row], and inverts the Hadamard transform.
  void Unrotate(int layer, size_t head, std::span<const Position> positions,
                const kernels::RopeTable& rope);
  // Resets the storage of an empty cache. Requires: all heads were shrunk to 0.
  void Clear();
  // Stored rows as bytes, keys and values. Requires: spans of n_rows rows; AssignRows: the head is
  // empty.
  void ReadRows(int layer, size_t head, std::span<std::byte> keys,
                std::span<std::byte> values) const;
  void AssignRows(int layer, size_t head, int64_t n_rows, std::span<const std::byte> keys,
                  std::span<const std::byte> values);
  // Copies the rows of another placement of the same configuration. Requires: this one is empty.
  void CopyFrom(const Placement& other);

  std::span<const kernels::HeadStore> stores(int layer) const;  // [kv_head]; n_slots counts rows
  int64_t n_rows(int layer, size_t head) const { return stores(layer)[head].n_slots; }
  kernels::HeadRows keys(int layer, size_t head) const;  // as they are stored
  kernels::HeadRows values(int layer, size_t head) const;
  int64_t row_bytes(int layer) const { return key_row_bytes(layer) + value_row_bytes(layer); }
  int64_t key_row_bytes(int layer) const { return at(layer).key_row_bytes; }
  int64_t value_row_bytes(int layer) const { return at(layer).value_row_bytes; }

 private:
  struct Layer {
    LayerShape shape;
    int64_t key_row_bytes = 0;
    int64_t value_row_bytes = 0;
    int64_t key_region_bytes = 0;  // of one KV head
    int64_t value_region_bytes = 0;
    int64_t offset_bytes = 0;  // of the layer's regions: keys [kv_head], values [kv_head]

    std::vector<kernels::HeadStore> stores;  // [kv_head]
    std::vector<int64_t> max_rows;           // [kv_head], rows that fit while gathered
  };

  Placement(kernels::Backend& backend, const CacheConfig& config);
  Result<void> Allocate();
  Layer& layer(int index);
  const Layer& at(int index) const;
  void UseHugePages();
  kernels::HeadStore OwnRegion(const Layer& layer, int64_t head) const;

  // gather.cc. Before a call adds entries to every layer: gathers the rows if that pays.
  void Arrange();
  // Before n entries are added to a layer: moves all rows back to their regions if they do not fit.
  void MakeRoom(const Layer& layer, int64_t n);
  // Stores the heads of k and v, side by side, after the rows of the n heads from `first` on.
  void StoreHeads(const kernels::Matrix& k, const kernels::Matrix& v, const Layer& layer,
                  size_t first, size_t n);
  bool ShouldGather() const;
  void Gather(bool written);
  void Scatter();
  int64_t GatheredBytes() const;
  void MoveTo(const Layer& layer, const kernels::HeadStore& to, kernels::HeadStore& store);

  kernels::Backend& backend_;
  CacheConfig config_;
  std::unique_ptr<kernels::Storage> memory_;
  std::vector<Layer> layers_;
  Phase phase_ = Phase::kPrefill;   // of the current call
  int64_t n_since_huge_pages_ = 0;  // appended since the last UseHugePages

  int64_t gathering_offset_ = 0;
  int64_t gathering_bytes_ = 0;  // 0: never
  bool gathered_ = false;
  bool shrunk_ = false;  // much was evicted since the rows were gathered or cleared
  bool outgrew_gathering_ =
      false;  // gathered rows had to move back while generating, since the last prompt

  // Buffers, kept so that a decode step allocates nothing.
  std::vector<int64_t> first_slot_;
  std::vector<int32_t> sources_;
  std::vector<float> key_weights_, value_weights_;
  std::vector<kernels::RowSum> key_sums_, value_sums_;
  std::vector<kernels::ByteRange> used_;
};

}  // namespace winnow::cache
