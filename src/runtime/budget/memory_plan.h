#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "compression/method.h"

// What a sequence's cache takes, worked out before it takes it: arithmetic on the numbers a method
// states about itself (Method::LayerSlots and the like) and on what the layers hold. Nothing is
// measured or allocated in the cache.
namespace winnow::runtime {

// Entries, summed over the KV heads of a layer or of several.
struct Entries {
  int64_t slots = 0;
  int64_t rows = 0;  // stored; as many as slots unless a method lets entries share rows
  bool operator==(const Entries&) const = default;
};

// What entries cost.
struct CacheCost {
  int n_layers = 0;
  int n_kv_heads = 0;
  int64_t row_bytes = 0;    // keys and values of a stored row
  int64_t slot_bytes = 0;   // the method's state for a slot
  int64_t fixed_bytes = 0;  // its state that does not depend on the number of slots
  // The largest int64_t where the product is beyond it.
  int64_t Bytes(const Entries& entries) const;
};

// Walks through the calls of a sequence and says the peak of each. A call goes through the layers
// one after another: those before the current one hold what the call leaves them, the current one
// what it held and the call's tokens, those after it still what they held.
class MemoryPlan {
 public:
  // `method` null: nothing is evicted. It outlives the plan.
  MemoryPlan(const CacheCost& cost, const compression::Method* method);

  // Begins where a sequence stands: [layer] entries, tokens of its text so far. n_prompt: of them
  // those up to the end of the last prefill call. Requires: held.size() == n_layers.
  void Start(std::span<const Entries> held, int64_t n_seen, int64_t n_prompt);

  // A prompt of n tokens under `budget` (slots per KV head), in prefill calls of n_call. Returns
  // the highest peak, bytes.
  int64_t Prompt(int64_t budget, int64_t n, int64_t n_call);
  // n generated tokens, one a call. Returns the highest peak, bytes.
  int64_t Decode(int64_t budget, int64_t n);
  // What is held at most between calls.
  int64_t bytes() const;
  int64_t n_slots() const { return Held().slots; }  // of all layers and KV heads
  // Whether no layer, nor all of them together, holds more than the method states of a cache after
  // a call of this phase, and n_more entries per KV head; nor more than a budget that is a bound.
  bool KeepsSizes(compression::Phase phase, int64_t budget, int64_t n_more) const;

 private:
  // One call; n tokens that evict nothing may also be n calls.
  int64_t Call(compression::Phase phase, int64_t budget, int64_t n);
  bool Evicts(compression::Phase phase) const;
  // Sizes of single layers are those of decode calls only.
  compression::Method::Sizes SizesAfter(compression::Phase phase, int64_t budget) const;
  Entries MaxOfLayer(compression::Phase phase, const compression::Method::Sizes& sizes, int layer,
                     int64_t budget) const;
  Entries Held() const;
  Entries ForHeads(int64_t slots, int64_t rows) const;  // so many in each KV head
  Entries ForLayers(const Entries& layer) const;        // so many in each layer

  CacheCost cost_;
  const compression::Method* method_;
  std::vector<Entries> held_;  // [layer], at most
  Entries total_;              // of all layers, at most; may be less than the sum
  int64_t n_seen_ = 0;
  int64_t n_prompt_ = 0;
};

// What a sequence is admitted with: its bytes between calls and while it generates, and what
// reading its prompt takes on top. Sequences read their prompts one after another, so a batch needs
// all of the first and one of the second.
struct Reservation {
  int64_t steady_bytes = 0;
  int64_t prefill_surplus_bytes = 0;
  int64_t list_bytes = 0;  // of the lists that say where entries stand, beside steady_bytes
  bool operator==(const Reservation&) const = default;
};

}  // namespace winnow::runtime
