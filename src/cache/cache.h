#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "base/result.h"
#include "cache/plan.h"
#include "kernels/ops.h"

namespace winnow::cache {

using kernels::TensorType;

struct CacheShape {
  int n_layers = 0;
  int n_kv_heads = 0;
  int key_dim = 0;    // per head
  int value_dim = 0;  // per head
  bool operator==(const CacheShape&) const = default;
};

struct CacheConfig {
  CacheShape shape;
  TensorType key_type = TensorType::kF16;
  TensorType value_type = TensorType::kF16;
  int64_t capacity = 0;  // slots per KV head; address space, committed as it is used
};

// Keys and values of one sequence: per layer and KV head its own slots. Only Append, Apply and
// Clear change them (law 1 of the house). Live slots of a head are 0..n_slots-1, in no particular
// order once entries were overwritten; `order` gives them from the oldest to the newest.
class Cache {
 public:
  // Errors: a type that cannot store these head sizes; memory refused.
  static Result<std::unique_ptr<Cache>> Make(kernels::Backend& backend, const CacheConfig& config);
  ~Cache();

  const CacheConfig& config() const;
  int64_t capacity() const;

  // Adds k [n, n_kv_heads * key_dim] and v [n, n_kv_heads * value_dim] of the given positions to a
  // layer. Error: more than `capacity` entries.
  Result<void> Append(int layer, const kernels::Matrix& k, const kernels::Matrix& v,
                      std::span<const Position> positions);

  // Carries out a plan: survivors are gathered at the front of each head, freed pages go back to
  // the system. Requires: plan.heads.size() == n_kv_heads; slots live and unique.
  void Apply(const Plan& plan);

  // Removes the entries of every layer and head from text position `position` on (to re-use a
  // common prefix).
  void Truncate(Position position);
  void Clear();

  // What attention needs, one per KV head.
  std::span<const kernels::HeadStore> Heads(int layer) const;
  int64_t n_slots(int layer, int kv_head) const;
  std::span<const Position> positions(int layer, int kv_head) const;  // [slot]
  std::span<const Slot> order(int layer, int kv_head) const;          // oldest to newest

  // Bytes the live entries take, keys and values, over all layers and heads (bookkeeping excluded).
  int64_t live_bytes() const;
  // Bytes one slot of one KV head takes.
  int64_t bytes_per_slot() const;

 private:
  Cache();
  struct Data;
  std::unique_ptr<Data> data_;
};

}  // namespace winnow::cache
