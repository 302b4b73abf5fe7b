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

// Where the keys of entries are when a query meets them. As long as nothing was evicted from a
// layer all of them mean the same, and keys are stored rotated, as without compression; Unrotate
// ends that.
enum class PositionMode {
  kOriginal,    // where they stood in the text; keys stay stored rotated
  kReassigned,  // at their rank among the entries of their head; stored before RoPE, rotated when
                // used (StreamingLLM, arXiv:2309.17453, section 3.2)
  kCapped,      // at most `distance_cap` before the query; stored before RoPE (LM-Infinite)
  kText,        // where they stood in the text, but stored before RoPE: methods that merge keys
};

// Numbers a method keeps from step to step. They live here so that they move with what they
// describe.
struct StateShape {
  int n_columns = 0;        // per slot
  int n_head_numbers = 0;   // per layer and KV head
  int n_layer_numbers = 0;  // per layer
  bool operator==(const StateShape&) const = default;
};

struct CacheConfig {
  CacheShape shape;
  TensorType key_type = TensorType::kF16;
  TensorType value_type = TensorType::kF16;
  int64_t capacity = 0;  // slots per KV head; address space, committed as it is used
  PositionMode positions = PositionMode::kOriginal;
  int64_t distance_cap = 0;  // kCapped
  StateShape state = {};
  bool shared_rows = false;  // several slots may share a stored row (EMS)
  // A cache that is held at its size while tokens are generated: from so many bytes on its rows are
  // put one after another after a prompt was compressed, so that they fill large pages, which are
  // faster to read. 0: never. Takes half as much address space again.
  int64_t gather_from_bytes = 0;
};

// Keys and values of one sequence: per layer and KV head its own slots. Only Append, Apply,
// Truncate and Clear change them (law 1 of the house). The live slots of a head are 0..n_slots-1,
// in no particular order once something was evicted: an eviction moves the newest entries into the
// places of the evicted ones. `order` gives the slots from the oldest entry to the newest; the
// place of a slot in `order` is its rank.
//
// With shared rows a slot is a place in a table, and keys and values lie in `rows`; otherwise slot
// i is row i.
class Cache {
 public:
  // Errors: a type that cannot store these head sizes; memory refused.
  static Result<std::unique_ptr<Cache>> Make(kernels::Backend& backend, const CacheConfig& config);
  ~Cache();

  // The same entries and state in memory of their own. Error: memory refused.
  Result<std::unique_ptr<Cache>> Copy() const;

  const CacheConfig& config() const;
  int64_t capacity() const;

  // Adds k [n, n_kv_heads * key_dim] and v [n, n_kv_heads * value_dim] of the given positions to a
  // layer; the state of the new slots is zero. Error: more than `capacity` entries.
  Result<void> Append(int layer, const kernels::Matrix& k, const kernels::Matrix& v,
                      std::span<const Position> positions);

  // How many of the tokens at `positions`, the next of a layer, can be appended and attended to in
  // one call: all of them, unless distances are capped. Then only those that see nothing beyond the
  // cap, for whom the others stand still, or else one.
  int64_t RowsTogether(int layer, std::span<const Position> positions) const;

  // Carries out a plan: merges, shares, evictions; freed pages go back to the system. An eviction
  // of e slots moves at most e rows per head. Requires: plan.heads.size() == n_kv_heads, slots
  // live.
  void Apply(const Plan& plan);

  // Whether the keys of a layer are stored after RoPE: always in mode kOriginal, otherwise until
  // Unrotate. Append and attention have to follow.
  bool keys_rotated(int layer) const;
  // From now on the layer's keys are stored before RoPE; those there are get turned back. Requires:
  // a mode other than kOriginal, and `rope` covers all positions. No-op if it is done already.
  void Unrotate(int layer, const kernels::RopeTable& rope);

  // Removes the entries of every layer and head from text position `position` on (to re-use a
  // common prefix). The state of what remains is not turned back.
  void Truncate(Position position);
  void Clear();  // state included

  // --- what attention needs, one per KV head ---
  std::span<const kernels::HeadStore> Heads(int layer) const;
  // Of the next call of attention, whose `n_queries` queries are the newest entries. Empty where
  // rows are all there is to know. Valid until the next change of the layer. Requires: the queries
  // can be taken together.
  std::span<const kernels::HeadEntries> Entries(int layer, int64_t n_queries) const;

  // --- what there is ---
  int64_t n_slots(int layer, int kv_head) const;
  int64_t n_rows(int layer, int kv_head) const;  // stored; n_slots unless shared
  std::span<const Position> positions(int layer, int kv_head) const;  // [slot], place in the text
  std::span<const Slot> order(int layer, int kv_head) const;          // [rank], oldest to newest
  std::span<const int32_t> ranks(int layer, int kv_head) const;       // [slot], its place in order
  std::span<const Slot> rows(int layer, int kv_head) const;           // [slot]; empty unless shared
  std::span<const float> factors(int layer, int kv_head) const;       // [slot]; empty unless shared
  kernels::HeadRows keys(int layer, int kv_head) const;               // [row]
  kernels::HeadRows values(int layer, int kv_head) const;

  // --- a method's state, writable ---
  std::span<double> column(int layer, int kv_head, int column);  // [slot]
  std::span<double> head_numbers(int layer, int kv_head);
  std::span<double> layer_numbers(int layer);

  // Bytes the live entries take: keys, values, and the method's state. Excluded is the bookkeeping
  // that every cache has: positions, order and ranks, 12 bytes per slot and head, and the counts of
  // shared rows, 4 bytes per row.
  int64_t live_bytes() const;
  int64_t live_bytes(int layer, int kv_head) const;
  int64_t state_bytes() const;  // the part of live_bytes that is not keys and values
  // Bytes one stored row of keys and values takes.
  int64_t bytes_per_slot() const;
  // Bytes of a slot's state.
  int64_t state_bytes_per_slot() const;

 private:
  Cache();
  struct Data;
  std::unique_ptr<Data> data_;
};

}  // namespace winnow::cache
