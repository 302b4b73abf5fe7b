#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "compression/method.h"

// The bytes of a sequence's cache, computed in advance: arithmetic on the numbers a method states
// about itself (Method::LayerSlots and the like) and on what the layers hold. Nothing is measured
// or allocated in the cache.
namespace winnow::runtime {

// Entries, summed over the KV heads of a layer or of several.
struct Entries {
  int64_t slots = 0;
  int64_t rows = 0;  // stored rows; equal to slots unless the method lets entries share rows
  bool operator==(const Entries&) const = default;
};

// Bytes per entry.
struct CacheCost {
  int n_layers = 0;
  int n_kv_heads = 0;
  int64_t row_bytes = 0;    // key and value of a stored row
  int64_t slot_bytes = 0;   // the method's state for a slot
  int64_t fixed_bytes = 0;  // state that does not depend on the number of slots
  // Without fixed_bytes. Saturates at the largest int64_t.
  int64_t Bytes(const Entries& entries) const;
};

// Simulates the calls of a sequence and returns the peak of each. A call goes through the layers
// one after another: the layers before the current one hold what is kept after the call, the
// current one what it held plus the call's tokens, and those after it still what they held.
class MemoryPlan {
 public:
  // `method` null: nothing is evicted. The method must outlive the plan.
  MemoryPlan(const CacheCost& cost, const compression::Method* method);

  // Starts from the state of a sequence: entries [layer] and the number of tokens so far. n_prompt:
  // those of them up to the end of the last prefill call. Requires: held.size() == n_layers.
  void Start(std::span<const Entries> held, int64_t n_seen, int64_t n_prompt);

  // A prompt of n tokens under `budget` (slots per KV head), in prefill calls of n_call. Returns
  // the highest peak, bytes.
  int64_t Prompt(int64_t budget, int64_t n, int64_t n_call);
  // n generated tokens, one per call. Returns the highest peak, bytes.
  int64_t Decode(int64_t budget, int64_t n);
  // Maximum bytes held between calls.
  int64_t bytes() const;
  int64_t n_slots() const { return Held().slots; }  // over all layers and KV heads
  // Whether each layer, and all of them together, hold at most what the method states for a cache
  // after a call of this phase plus n_more entries per KV head; and at most the budget, if it is a
  // bound.
  bool KeepsSizes(compression::Phase phase, int64_t budget, int64_t n_more) const;

 private:
  // One call. If nothing is evicted, n calls of one token have the same result.
  int64_t Call(compression::Phase phase, int64_t budget, int64_t n);
  bool Evicts(compression::Phase phase) const;
  // The sizes of single layers are set for decode calls only.
  compression::Method::Sizes SizesAfter(compression::Phase phase, int64_t budget) const;
  Entries MaxOfLayer(compression::Phase phase, const compression::Method::Sizes& sizes, int layer,
                     int64_t budget) const;
  Entries Held() const;
  Entries ForHeads(int64_t slots, int64_t rows) const;  // this many in each KV head
  Entries ForLayers(const Entries& layer) const;        // this many in each layer

  CacheCost cost_;
  const compression::Method* method_;
  std::vector<Entries> held_;  // [layer], upper bounds
  Entries total_;              // upper bound for all layers together; may be less than the sum
  int64_t n_seen_ = 0;
  int64_t n_prompt_ = 0;
};

// What a sequence reserves when it is admitted: its bytes between calls and while it generates, and
// the extra bytes while its prompt is read. Sequences read their prompts one after another, so a
// batch needs steady_bytes for each sequence and prefill_surplus_bytes once.
struct Reservation {
  int64_t steady_bytes = 0;
  int64_t prefill_surplus_bytes = 0;
  int64_t list_bytes = 0;  // lists of slots and positions; not in steady_bytes
  bool operator==(const Reservation&) const = default;
};

}  // namespace winnow::runtime
