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
  int n_kv_heads = 0;  // that have entries of their own
  int key_dim = 0;     // per head
  int value_dim = 0;   // per head
  bool operator==(const LayerShape&) const = default;
};

struct CacheShape {
  int n_layers = 0;
  int n_kv_heads = 0;  // of every layer; where layers differ, the largest numbers
  int key_dim = 0;
  int value_dim = 0;
  std::vector<LayerShape> by_layer = {};  // [n_layers] where layers differ; empty: all alike

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
  // Of a token's keys and values in f16, in all layers.
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

// Of a call of the model. The cache is told, because how many tokens a call has does not say what
// they are.
enum class Phase {
  kPrefill,  // a prompt, or a chunk of one: one-shot methods treat cache + chunk as the prompt
  kDecode,   // one generated token; in streaming also the tokens of the text
};

// How a method has entries stored.
struct StoragePolicy {
  PositionMode positions = PositionMode::kOriginal;
  int64_t distance_cap = 0;     // kCapped: of the rotation; 0: what the model was trained for
  bool shared_rows = false;     // several slots may share a stored row
  bool per_query_head = false;  // every query head keeps its own entries: the cache stores a KV
                                // head once for each query head of its group
  // The column of halves in the method's state that HeadPlan::biases writes, and attention adds to
  // the scores of the slots; -1: none. Not with shared rows.
  int bias_column = -1;
  bool operator==(const StoragePolicy&) const = default;
};

// Numbers a method keeps from step to step. They live here so that they move with what they
// describe. A column has a number per slot; its type is what the numbers need: double for sums that
// grow as long as the text does, half for sums over a window.
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
  // Keys stored after RoPE go through Backend::Hadamard before they are stored, which spreads the
  // few large components that would cost 4-bit keys their precision. Queries have to go through it
  // too. Keys stored before RoPE do not: what rotates them would have to turn them back first.
  bool hadamard_keys = false;
  int64_t capacity = 0;  // slots per KV head; address space, committed as it is used
  // Slots beyond them for what a call appends and takes away before it ends (a replay).
  int64_t transient_capacity = 0;
  StoragePolicy storage = {};
  StateShape state = {};
  // Above 1: neighbouring heads that store the same KV head of the model, each its own selection
  // (StoragePolicy::per_query_head).
  int n_copies = 1;
  // A cache that is held at its size while tokens are generated: from so many bytes on its rows are
  // put one after another after a prompt was compressed, so that they fill huge pages, which are
  // faster to read. 0: never. Takes half as much address space again.
  int64_t gather_from_bytes = 0;
};

// Keys and values of one sequence: per layer and KV head its own slots. Only Append, Apply,
// Truncate and Clear change them. The live slots of a head are 0..n_slots-1,
// in no particular order once something was evicted: an eviction moves the newest entries into the
// places of the evicted ones. `order` gives the slots from the oldest entry to the newest; the
// place of a slot in `order` is its rank.
//
// Where entries stand is kept in lists that take no memory as long as nothing was evicted
// (index/entry_list.h). positions, order and ranks write them out as spans, which are valid until
// the layer changes or the same is asked of another layer. Not for several threads at once.
//
// With shared rows a slot is a place in a table, and keys and values lie in `rows`; otherwise slot
// i is row i.
class Cache {
 public:
  // Errors: a type that cannot store these head sizes; memory refused.
  static Result<std::unique_ptr<Cache>> Make(kernels::Backend& backend, const CacheConfig& config);
  ~Cache();

  // A deep copy: entries and state. Error: memory refused.
  Result<std::unique_ptr<Cache>> Copy() const;

  const CacheConfig& config() const;
  int64_t capacity() const;  // that of the transient slots not counted
  int64_t transient_capacity() const;

  // Before the model takes in n tokens: all layers are as the last call left them. The rows are put
  // where they are read fastest (placement/gather.cc), and working memory of a larger call goes
  // back. A call that is not announced is right too, only slower.
  void BeginCall(Phase phase, int64_t n_tokens);

  // Whether a layer can take n entries more. Error: it cannot; says how many it holds.
  Result<void> CheckRoom(int layer, int64_t n) const;
  // Adds k [n, n_kv_heads / n_copies * key_dim] and v [n, n_kv_heads / n_copies * value_dim] of the
  // given positions to a layer, every head of them n_copies times; the state of the new slots is
  // zero. k is transformed in place where keys_transformed. Error: that of CheckRoom. Requires:
  // positions ascend, from the newest entry's on.
  Result<void> Append(int layer, const kernels::Matrix& k, const kernels::Matrix& v,
                      std::span<const Position> positions);

  // How many of the tokens at `positions`, the next of a layer, can be appended and attended to in
  // one call: all of them, unless distances are capped. Then those that see nothing beyond the cap,
  // as the relative distances of all entries are then the same for each, or else one.
  int64_t RowsTogether(int layer, std::span<const Position> positions) const;

  // Carries out a plan: merges, shares, evictions; freed pages go back to the system. An eviction
  // of e slots moves at most e rows per head. Requires: plan.heads.size() == n_kv_heads, slots
  // live.
  void Apply(const Plan& plan);

  // Whether the keys of a layer are stored after RoPE: always in mode kOriginal, otherwise until
  // Unrotate. Append and attention have to follow.
  bool keys_rotated(int layer) const;
  // Whether the layer's keys are stored after a Hadamard transform (CacheConfig::hadamard_keys).
  bool keys_transformed(int layer) const;
  // From now on the layer's keys are stored before RoPE; existing keys are rotated back. Requires:
  // a mode other than kOriginal, and `rope` covers all positions. No-op if it is done already.
  void Unrotate(int layer, const kernels::RopeTable& rope);

  // Removes the entries of every layer and head from text position `position` on (to re-use a
  // common prefix). The state of what remains is not turned back.
  void Truncate(Position position);
  // The same in one layer: for entries that were only appended to look at what attends from them.
  void TruncateLayer(int layer, Position position);
  void Clear();  // state included

  // --- beyond the process ---
  // Entries and state of a layer as bytes; rows as they are stored. (snapshot.cc says how.)
  void WriteLayer(int layer, std::string& bytes) const;
  // The same back, into a layer without entries. Error: not what a cache of this configuration
  // writes for tokens before position `end` (says what is wrong; kInvalid: more entries than its
  // capacity); the cache is then undefined.
  Result<void> ReadLayer(int layer, std::span<const std::byte> bytes, Position end);

  // --- what attention needs, one per KV head ---
  std::span<const kernels::HeadStore> Heads(int layer) const;
  // Of the next call of attention, whose `n_queries` queries are the newest entries. Empty where
  // rows are all there is to know. Valid until the layer changes or another layer's are asked for.
  // Requires: the queries can be taken together.
  std::span<const kernels::HeadEntries> Entries(int layer, int64_t n_queries) const;

  // --- what there is ---
  int64_t n_slots(int layer, int kv_head) const;
  int64_t n_rows(int layer, int kv_head) const;  // stored; n_slots unless shared
  std::span<const Position> positions(int layer, int kv_head) const;  // [slot], place in the text
  std::span<const Slot> order(int layer, int kv_head) const;          // [rank], oldest to newest
  std::span<const int32_t> ranks(int layer, int kv_head) const;       // [slot], its place in order
  SlotRows rows(int layer, int kv_head) const;                        // [slot]; empty unless shared
  std::span<const Half> factors(int layer, int kv_head) const;        // [slot]; empty unless shared
  // [row], slots that have it; empty unless shared
  std::span<const int32_t> n_sharing(int layer, int kv_head) const;
  kernels::HeadRows keys(int layer, int kv_head) const;  // [row]
  kernels::HeadRows values(int layer, int kv_head) const;

  // --- a method's state, writable ---
  std::span<double> column(int layer, int kv_head, int column);       // [slot]
  std::span<float> float_column(int layer, int kv_head, int column);  // [slot]
  std::span<Half> half_column(int layer, int kv_head, int column);    // [slot]
  std::span<double> head_numbers(int layer, int kv_head);
  std::span<double> layer_numbers(int layer);

  // Bytes of the live entries: keys, values, and the method's state (with shared rows also the row
  // and the factor of every slot).
  int64_t live_bytes() const;
  int64_t live_bytes(int layer, int kv_head) const;
  int64_t state_bytes() const;  // the part of live_bytes that is not keys and values
  // Bytes of what says where entries stand, besides live_bytes: allocated for the lists of slots
  // and positions, and for the counts of shared rows. 0 as long as nothing was evicted. Heads that
  // use one list have equal parts of it. The written-out spans of the layer that was asked for last
  // are working memory and not counted.
  int64_t list_bytes() const;
  int64_t list_bytes(int layer, int kv_head) const;
  // Bytes one stored row of keys and values takes in a layer.
  int64_t bytes_per_slot(int layer) const;
  // Bytes the keys and values of a token take in all layers and KV heads.
  int64_t bytes_per_token() const;
  // Bytes of a slot's state.
  int64_t state_bytes_per_slot() const;
  // Bytes of a slot in the lists, at most, where heads share none. A list may be allocated for a
  // sixteenth more slots than there are, or 48.
  int64_t max_list_bytes_per_slot() const;

 private:
  Cache();
  struct Data;
  kernels::Backend* backend_ = nullptr;
  std::unique_ptr<Data> data_;
};

// The numbers a method keeps in a cache, writable, and nothing else of it.
class StateView {
 public:
  explicit StateView(Cache& cache) : cache_(&cache) {}
  // As those of Cache.
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
