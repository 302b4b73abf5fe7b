#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/half.h"
#include "base/result.h"
#include "cache/index/row_table.h"
#include "cache/plan.h"
#include "kernels/ops.h"

namespace winnow::cache {

using kernels::TensorType;

struct LayerShape {
  int n_kv_heads = 0;  // heads that have entries of their own
  int key_dim = 0;     // per head
  int value_dim = 0;   // per head
  bool operator==(const LayerShape&) const = default;
};

struct CacheShape {
  int n_layers = 0;
  int n_kv_heads = 0;  // of every layer; if layers differ, the maximum
  int key_dim = 0;
  int value_dim = 0;
  std::vector<LayerShape> by_layer = {};  // [n_layers] if layers differ; empty: all alike

  bool alike() const { return by_layer.empty(); }
  LayerShape layer(int index) const {
    if (alike()) return {.n_kv_heads = n_kv_heads, .key_dim = key_dim, .value_dim = value_dim};
    return by_layer[static_cast<size_t>(index)];
  }
  int n_kv_heads_in_all() const {
    int n = alike() ? n_layers * n_kv_heads : 0;
    for (const LayerShape& one : by_layer) n += one.n_kv_heads;
    return n;
  }
  // Bytes of one token's keys and values in f16, in all layers.
  int64_t f16_bytes_per_token() const {
    constexpr int64_t kHalfBytes = 2;
    int64_t n = 0;
    for (int i = 0; i < n_layers; ++i) {
      n += layer(i).n_kv_heads * (int64_t{layer(i).key_dim} + layer(i).value_dim);
    }
    return n * kHalfBytes;
  }
  bool operator==(const CacheShape&) const = default;
};

// Requires: at least one layer.
CacheShape MakeShape(const std::vector<LayerShape>& layers);

// The positions of entries' keys as a query sees them. Until something is evicted from a layer all
// modes mean the same, and keys are stored rotated, as without compression; Unrotate ends that.
enum class PositionMode {
  kOriginal,    // their place in the text; keys stay stored rotated
  kReassigned,  // their rank among the entries of their head; stored before RoPE, rotated when
                // read (StreamingLLM, arXiv:2309.17453, section 3.2)
  kCapped,      // at most `distance_cap` before the query; stored before RoPE (LM-Infinite)
  kText,        // their place in the text, but stored before RoPE: for methods that merge keys
};

// Whether queries see entries elsewhere than at their place in the text, so that a text may be
// longer than the model was trained for.
constexpr bool IsReassigned(PositionMode positions) {
  return positions == PositionMode::kReassigned || positions == PositionMode::kCapped;
}

// The kind of a call. The cache must be told, because the number of tokens does not say what they
// are.
enum class Phase {
  kPrefill,  // a prompt, or a chunk of one: one-shot methods treat cache + chunk as the prompt
  kDecode,   // one generated token; in streaming also one token of the text
};

// How a method's entries are stored.
struct StoragePolicy {
  PositionMode positions = PositionMode::kOriginal;
  int64_t distance_cap = 0;     // kCapped: largest distance rotated by; 0: the training context
  bool shared_rows = false;     // several slots may share a stored row
  bool per_query_head = false;  // every query head keeps its own entries: the cache stores a KV
                                // head once for each query head of its group
  // The half column of the method's state that HeadPlan::biases writes and attention adds to the
  // scores of the slots; -1: none. Not with shared rows.
  int bias_column = -1;

  bool ReassignsPositions() const { return IsReassigned(positions); }
  bool operator==(const StoragePolicy&) const = default;
};

// Numbers a method keeps from step to step. They live in the cache so that they move with the
// entries they describe. A column has one number per slot. Its type depends on the numbers: double
// for sums that grow with the text, half for sums over a window.
struct StateShape {
  int n_columns = 0;        // of doubles
  int n_float_columns = 0;  // of floats
  int n_half_columns = 0;   // of halves
  int n_head_numbers = 0;   // doubles, per layer and KV head
  int n_layer_numbers = 0;  // doubles, per layer

  int64_t slot_bytes() const {
    return int64_t{n_columns} * static_cast<int64_t>(sizeof(double)) +
           int64_t{n_float_columns} * static_cast<int64_t>(sizeof(float)) +
           int64_t{n_half_columns} * static_cast<int64_t>(sizeof(Half));
  }
  StateShape& operator+=(const StateShape& more) {
    n_columns += more.n_columns;
    n_float_columns += more.n_float_columns;
    n_half_columns += more.n_half_columns;
    n_head_numbers += more.n_head_numbers;
    n_layer_numbers += more.n_layer_numbers;
    return *this;
  }
  bool operator==(const StateShape&) const = default;
};

struct CacheConfig {
  CacheShape shape;
  TensorType key_type = TensorType::kF16;
  TensorType value_type = TensorType::kF16;
  // Keys that are stored after RoPE first go through Backend::Hadamard, which spreads the few large
  // components that would cost 4-bit keys their precision. Queries must go through it too. Keys
  // stored before RoPE do not, because it would have to be inverted before each rotation.
  bool hadamard_keys = false;
  int64_t capacity = 0;  // slots per KV head; address space, committed as it is used
  // Extra slots for entries that a call appends and removes before it ends (a replay).
  int64_t transient_capacity = 0;
  StoragePolicy storage = {};
  StateShape state = {};
  // Above 1: this many neighbouring heads store the same KV head of the model, each with its own
  // selection of entries (StoragePolicy::per_query_head).
  int n_copies = 1;
  // For caches that keep their size while tokens are generated: from this many bytes on, rows are
  // gathered one after another once a prompt is compressed, so that they fill huge pages, which are
  // faster to read. 0: never. Needs half as much address space again.
  int64_t gather_from_bytes = 0;
};

// Keys and values of one sequence, with separate slots per layer and KV head. Only Append, Apply,
// Truncate, TruncateLayer, ReadLayer and Clear change entries; Unrotate changes their stored form.
// The live slots of a head are 0..n_slots-1, in no particular order once something was evicted: an
// eviction moves the newest entries into the places of the evicted ones. `order` lists the slots
// from the oldest entry to the newest; the place of a slot in `order` is its rank.
//
// Positions and slots are kept in lists that take no memory until something is evicted
// (index/entry_list.h). positions, order and ranks write them out as spans, which are valid until
// the layer changes or the same list of another layer is requested. Several threads may request
// lists of one layer; nothing else is thread-safe.
//
// With shared rows a slot is an index into a table, and keys and values lie in `rows`; otherwise
// slot i is row i.
class Cache {
 public:
  // Errors: a type that cannot store these head sizes; memory refused.
  static Result<std::unique_ptr<Cache>> Make(kernels::Backend& backend, const CacheConfig& config);
  ~Cache();

  // A deep copy of entries and state. Error: memory refused.
  Result<std::unique_ptr<Cache>> Copy() const;

  const CacheConfig& config() const;
  int64_t capacity() const;  // without the transient slots
  int64_t transient_capacity() const;

  // Call before the model takes in n tokens, when all layers are as the last call left them. Moves
  // rows to where they are read fastest (placement/gather.cc), and frees buffers of a larger call.
  // Without this call results are the same, only slower.
  void BeginCall(Phase phase, int64_t n_tokens);

  // Whether n more entries fit into a layer. Error: they do not; says how many it holds.
  Result<void> CheckRoom(int layer, int64_t n) const;
  // Appends k [n, n_kv_heads / n_copies * key_dim] and v [n, n_kv_heads / n_copies * value_dim] at
  // the given positions to a layer, n_copies times each head; the state of the new slots is zero.
  // If keys_transformed, k is transformed in place. Error: as CheckRoom's. Requires: positions
  // ascend, and lie after the newest entry's.
  Result<void> Append(int layer, const kernels::Matrix& k, const kernels::Matrix& v,
                      std::span<const Position> positions);

  // How many of the tokens at `positions`, the next of a layer, can be appended and attended to in
  // one call: all of them, unless distances are capped. With a cap: those that see no entry beyond
  // it, because all their relative distances are then uncapped; at least one.
  int64_t RowsTogether(int layer, std::span<const Position> positions) const;

  // Carries out a plan: merges, rewritten values, biases, shares, then evictions; freed pages go
  // back to the system. Evicting e slots moves at most e rows per head. Requires: plan.heads.size()
  // == n_kv_heads, slots live.
  void Apply(const Plan& plan);

  // Whether the keys of a layer are stored after RoPE: always in mode kOriginal, otherwise until
  // Unrotate. Append and attention must use the same form.
  bool keys_rotated(int layer) const;
  // Whether the layer's keys are stored after a Hadamard transform (CacheConfig::hadamard_keys).
  bool keys_transformed(int layer) const;
  // Rotates the layer's keys back; from now on they are stored before RoPE. Does nothing if that
  // was done already. Requires: a mode other than kOriginal, and `rope` covers all positions.
  void Unrotate(int layer, const kernels::RopeTable& rope);

  // Removes the entries of every layer and head from text position `position` on (to reuse a common
  // prefix). The state of the remaining entries is not rolled back.
  void Truncate(Position position);
  // The same in one layer: for entries appended only to observe their attention (a replay).
  void TruncateLayer(int layer, Position position);
  void Clear();  // state included

  // --- saving and loading ---
  // Appends entries and state of a layer to `bytes`; rows as they are stored. Format: snapshot.cc.
  void WriteLayer(int layer, std::string& bytes) const;
  // Reads such bytes into a layer without entries. Error: not what a cache of this configuration
  // writes for tokens before position `end` (says what is wrong; kInvalid: more entries than the
  // capacity); the cache is then undefined.
  Result<void> ReadLayer(int layer, std::span<const std::byte> bytes, Position end);

  // --- for attention, one element per KV head ---
  std::span<const kernels::HeadStore> Heads(int layer) const;
  // Positions, rows, factors and biases for the next call of attention, whose `n_queries` queries
  // are the newest entries. Empty if the kernels need the stored rows only. Valid until the layer
  // changes or another layer's entries are requested. Requires: the queries can be taken together
  // (RowsTogether).
  std::span<const kernels::HeadEntries> Entries(int layer, int64_t n_queries) const;

  // --- contents ---
  int64_t n_slots(int layer, int kv_head) const;
  int64_t n_rows(int layer, int kv_head) const;  // stored; n_slots unless shared
  std::span<const Position> positions(int layer, int kv_head) const;  // [slot], place in the text
  std::span<const Slot> order(int layer, int kv_head) const;          // [rank], oldest to newest
  std::span<const int32_t> ranks(int layer, int kv_head) const;       // [slot], its place in order
  SlotRows rows(int layer, int kv_head) const;                        // [slot]; empty unless shared
  std::span<const Half> factors(int layer, int kv_head) const;        // [slot]; empty unless shared
  // [row], number of slots stored in it; empty unless shared
  std::span<const int32_t> n_sharing(int layer, int kv_head) const;
  kernels::HeadRows keys(int layer, int kv_head) const;  // [row]
  kernels::HeadRows values(int layer, int kv_head) const;

  // --- a method's state, writable ---
  std::span<double> column(int layer, int kv_head, int column);       // [slot]
  std::span<float> float_column(int layer, int kv_head, int column);  // [slot]
  std::span<Half> half_column(int layer, int kv_head, int column);    // [slot]
  std::span<double> head_numbers(int layer, int kv_head);
  std::span<double> layer_numbers(int layer);

  // Bytes of the live entries: keys, values, and the method's state (with shared rows including the
  // row and the factor of every slot).
  int64_t live_bytes() const;
  int64_t live_bytes(int layer, int kv_head) const;
  int64_t state_bytes() const;  // the part of live_bytes that is not keys and values
  // Bytes allocated for the lists of slots and positions, and for the counts of shared rows; not
  // part of live_bytes. 0 until something is evicted. Heads that share a list are assigned equal
  // parts of it. The written-out spans are buffers and not counted.
  int64_t list_bytes() const;
  int64_t list_bytes(int layer, int kv_head) const;
  // Bytes of one stored row of keys and values in a layer.
  int64_t bytes_per_slot(int layer) const;
  // Bytes of a token's keys and values in all layers and KV heads.
  int64_t bytes_per_token() const;
  // Bytes of the state of one slot.
  int64_t state_bytes_per_slot() const;
  // Upper bound of a slot's bytes in the lists if heads share none. A list may be allocated for a
  // sixteenth more slots than it holds, or 48.
  int64_t max_list_bytes_per_slot() const;

 private:
  Cache();
  struct Data;
  kernels::Backend* backend_ = nullptr;
  std::unique_ptr<Data> data_;
};

// Write access to the numbers a method keeps in a cache, and to nothing else of it.
class StateView {
 public:
  explicit StateView(Cache& cache) : cache_(&cache) {}
  // As in Cache.
  std::span<double> column(int layer, int kv_head, int column) const {
    return cache_->column(layer, kv_head, column);
  }
  std::span<float> float_column(int layer, int kv_head, int column) const {
    return cache_->float_column(layer, kv_head, column);
  }
  std::span<Half> half_column(int layer, int kv_head, int column) const {
    return cache_->half_column(layer, kv_head, column);
  }
  std::span<double> head_numbers(int layer, int kv_head) const {
    return cache_->head_numbers(layer, kv_head);
  }
  std::span<double> layer_numbers(int layer) const { return cache_->layer_numbers(layer); }

 private:
  Cache* cache_;
};

}  // namespace winnow::cache
