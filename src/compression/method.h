#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "attention/rows.h"
#include "base/rng.h"
#include "cache/cache.h"
#include "cache/plan.h"
#include "compression/error_profile.h"
#include "compression/output_projections.h"
#include "compression/traits.h"
#include "kernels/ops.h"

// What a compression method is. A method moves no memory: it reads taps and its own state, and
// returns plans. Everything it keeps from step to step lies in the cache's columns and numbers, so
// a method is a value that any number of sequences can share.
namespace winnow::compression {

using cache::Plan;
using cache::Position;
using cache::Slot;

// After a prompt call the model reads the call's tokens once more, introduced by a text that asks
// it to repeat them: what it attends to then is what the prompt will be asked for. The entries of
// this replay are dropped layer by layer as soon as the method has looked; logits are not computed.
// Only where something must be evicted (n_seen above the budget).
struct ReplaySpec {
  std::string text = {};       // before the first tokens; empty: there is no replay
  std::string next_text = {};  // before later ones, followed by the n_repeated tokens before them
  int n_repeated = 8;
  int64_t chunk = 2048;        // tokens of the prompt replayed at a time, fewer where room is short
  kernels::TapSpec taps = {};  // of every chunk of the replay
  attention::RowSpec rows = {};

  bool any() const { return !text.empty(); }
  // Entries a layer holds at most for the replay of a call of n tokens, whatever the tokenizer.
  int64_t MaxTokens(int64_t n) const;
  bool operator==(const ReplaySpec&) const = default;
};

// The part of a call's tokens that is replayed at once.
struct ReplayChunk {
  int64_t first = 0;  // token of the call
  int64_t n = 0;
  int64_t n_text = 0;  // tokens of the replay before those of the call
};

// What a method needs from attention and keeps between steps.
struct Needs {
  kernels::TapSpec prefill = {};  // calls of several tokens: a prompt, or a chunk of one
  kernels::TapSpec decode = {};   // calls of one token after the prompt
  cache::StateShape state = {};
  // Above 0: prefill.last_sums follows from the call, as this share of the sequence's tokens.
  double last_sums_share = 0;
  attention::RowSpec prompt_rows = {};  // of prefill calls
  ReplaySpec replay = {};
  bool error_profiles = false;  // LayerCall::profiles
  bool operator==(const Needs&) const = default;
};

// An entry that competes with those of other KV heads.
struct Candidate {
  double score = 0;
  Position position = 0;
  int kv_head = 0;
};

// Reused from call to call, so that a decode step allocates nothing.
struct Scratch {
  std::vector<std::vector<double>> scores;  // [kv_head][rank in the region]
  std::vector<int64_t> sizes;               // [kv_head]
  std::vector<int32_t> ranks;
  std::vector<std::vector<int32_t>> evicted;  // [kv_head], ranks
  std::vector<double> numbers;
  std::vector<int32_t> indices;
  std::vector<std::vector<int32_t>>
      all_slots;  // [list][slot] = slot; whoever changes it restores it
  std::vector<float> floats;
  std::vector<Candidate> candidates;
  std::array<kernels::Taps, 4> reduced;  // [TapSpec::Reduce], of taps shared between readers
};

// The plans of one call of Decide. Reused: the first n_plans are valid.
class PlanList {
 public:
  // An empty plan for a layer, one HeadPlan per KV head.
  Plan& Add(int layer, int n_kv_heads);
  void Clear() {
    n_plans_ = 0;
    again = false;
    kept_rows.clear();
  }
  std::span<const Plan> plans() const { return std::span(plans_).first(n_plans_); }

  // Set by methods whose next decision must see this one carried out (merges one after another):
  // the caller applies the plans and calls Decide for the same layer once more, with the next
  // LayerCall::pass.
  bool again = false;
  // Methods with RowPolicy::kKept: rows of the call, 0..n_new-1, that the layers after
  // this one still compute, ascending. Empty: all.
  std::vector<int32_t> kept_rows;

 private:
  std::vector<Plan> plans_;
  size_t n_plans_ = 0;
};

// What a method learns in a prompt call before it decides: its own, from the first layer of the
// call to the end of the call. Working memory like taps, kept by nobody else.
class Memory {
 public:
  virtual ~Memory() = default;
  // To decide with another budget from what was learnt.
  virtual std::unique_ptr<Memory> Copy() const = 0;
};

// Copy by the copy constructor.
template <class Derived>
class CopiedMemory : public Memory {
 public:
  std::unique_ptr<Memory> Copy() const override {
    return std::make_unique<Derived>(static_cast<const Derived&>(*this));
  }
};

// Newest entries that stay of a whole prompt of n_new tokens that follows text read before: a
// question, say, whose answer needs its words. All of them up to half of the budget, of a longer
// one the end. Heeded by methods that choose among all entries alike; others keep what is new
// anyway.
inline int64_t ProtectedOfLaterPrompt(int64_t n_new, int64_t budget) {
  constexpr int64_t kEnd = 32;
  return n_new <= budget / 2 ? n_new : std::min(kEnd, budget / 2);
}

// One layer, when its attention over the call's tokens is done. The call's own entries are the
// newest n_new of every head.
struct LayerCall {
  kernels::Backend& backend;
  const cache::Cache& cache;
  cache::StateView state;  // the numbers methods keep in that cache, writable
  Scratch& scratch;
  const kernels::Taps* taps = nullptr;  // as needs() asked for this phase
  Phase phase = Phase::kPrefill;
  int pass = 0;  // how often Decide ran for this layer's tokens before (PlanList::again); the taps
                 // are only valid in pass 0, slots move afterwards
  int layer = 0;
  int n_layers = 0;
  int n_q_heads = 0;
  int64_t n_new = 0;
  int64_t n_seen = 0;       // tokens of the sequence so far, the new ones included
  int64_t budget = 0;       // slots per KV head; 0 for methods without one
  int64_t n_protected = 0;  // newest entries that stay whatever else goes (ProtectedOfLaterPrompt)
  cache::StateShape first = {};  // where the method's own state begins: what lies before it is that
                                 // of others (two methods may share a cache)
  const attention::Rows* rows = nullptr;     // as Needs::prompt_rows or ReplaySpec::rows asked for
  const kernels::RopeTable* rope = nullptr;  // that rotated them; not in DecideAll
  float scale = 0;                           // of q·k before the softmax; not in DecideAll
  Memory* memory = nullptr;                  // MakeMemory's, in prefill calls
  const OutputProjections* projections = nullptr;  // null: none are known (recordings)
  const ErrorProfiles* profiles = nullptr;         // the model's, where needs() asked for them
  const OnErrorCurve* on_error_curve = nullptr;  // who wants to know of error curves; null: nobody
  ReplayChunk replay = {};                       // in ObserveReplay
  bool replayed = false;  // in DecideAll: whether there was a replay of the call

  int n_kv_heads() const { return cache.config().shape.n_kv_heads; }
  int group() const { return n_q_heads / n_kv_heads(); }
  // The same call with other taps.
  LayerCall WithTaps(const kernels::Taps& other) const {
    LayerCall own = *this;
    own.taps = &other;
    return own;
  }
  int64_t n_slots(int kv_head) const { return cache.n_slots(layer, kv_head); }
  std::span<const Slot> order(int kv_head) const { return cache.order(layer, kv_head); }
  std::span<double> column(int kv_head, int i) const {
    return state.column(layer, kv_head, first.n_columns + i);
  }
  std::span<float> float_column(int kv_head, int i) const {
    return state.float_column(layer, kv_head, first.n_float_columns + i);
  }
  std::span<Half> half_column(int kv_head, int i) const {
    return state.half_column(layer, kv_head, first.n_half_columns + i);
  }
  double& head_number(int kv_head, int i) const {
    const int at = first.n_head_numbers + i;
    return state.head_numbers(layer, kv_head)[static_cast<size_t>(at)];
  }
  double& layer_number(int i) const { return layer_number(layer, i); }
  double& layer_number(int other_layer, int i) const {
    const int at = first.n_layer_numbers + i;
    return state.layer_numbers(other_layer)[static_cast<size_t>(at)];
  }
  // Weights of window row `row` for all slots of a head: [slot].
  std::span<const float> last_row(int head, int row) const {
    const std::vector<float>& all = taps->last_rows[static_cast<size_t>(head)];
    const size_t n = all.size() / static_cast<size_t>(taps->n_last_rows);
    return std::span(all).subspan(static_cast<size_t>(row) * n, n);
  }
};

class Method {
 public:
  virtual ~Method() = default;
  virtual const Traits& traits() const = 0;
  virtual Needs needs() const = 0;

  // Capability: what stays of a text depends on the queries of its tokens, the last ones above all
  // (attention weights). What was kept for one question then serves another one worse.
  bool query_dependent() const;
  // Capability: of a prompt the last tokens decide, by what they attend to. Of a document that is
  // read alone then stays what its end asks for, not what will be asked about it.
  bool needs_question() const;

  // Runs after the attention of every layer in every call, layer by layer: updates the state, and
  // adds the plans that bring the cache (this layer, or layers before it: shrink only) to its size.
  // Slots in the plans are those of the cache as it is; the caller applies them in order. In other
  // position modes than kOriginal a layer with more than `budget` slots has its keys before RoPE.
  // Of a prompt it is part of the block of rows that ends the layer, and is not cut as DecideAll
  // is. Requires: budget >= traits().budget.min where a budget is needed.
  virtual void Decide(const LayerCall& call, PlanList& plans) const = 0;

  // For methods that learn in one layer, or in one pass, what they need in another. Null: no memory
  // is needed.
  virtual std::unique_ptr<Memory> MakeMemory() const { return nullptr; }
  // Runs after the attention of every layer in every chunk of the replay. The newest call.n_new
  // entries of every head are the replay's: they go as soon as this returns.
  virtual void ObserveReplay(const LayerCall&) const {}
  // With DecisionPolicy::Prefill::kAtEnd: runs after a prefill call, when all layers and the replay
  // are done, and gives plans for any layers. What takes long is done in pieces, of some tens of
  // milliseconds, so that others who wait for tokens get some in between: PlanList::again asks for
  // the next one. Where a piece is cut does not change what comes out.
  // There are neither taps nor rows. Requires: positions are original, or `plans` stays empty.
  virtual void DecideAll(const LayerCall&, PlanList&) const {}

  // Slots a KV head may hold after a call, the largest over layers and heads, for a prompt of
  // n tokens under `budget`: what the caller must make room for. Growth in decode not counted. Like
  // the other totals it does not fall when n or the budget grows.
  virtual int64_t MaxSlots(int64_t budget, int64_t n) const;
  // The same summed over all layers, per KV head (PyramidKV and the like give layers different
  // sizes).
  virtual int64_t TotalSlots(int64_t budget, int64_t n, int n_layers) const;

  // Rows of keys and values stored for TotalSlots, the same unless StoragePolicy::shared_rows.
  virtual int64_t TotalRows(int64_t budget, int64_t n, int n_layers) const {
    return TotalSlots(budget, n, n_layers);
  }

  // Slots a layer holds at most after a prefill call, the mean over its KV heads, when the text is
  // n tokens long. Together the layers hold TotalSlots at most, which may be less than the sum.
  virtual int64_t LayerSlots(int layer, int n_layers, int64_t budget, int64_t n) const;
  virtual int64_t LayerRows(int layer, int n_layers, int64_t budget, int64_t n) const {
    return LayerSlots(layer, n_layers, budget, n);
  }

  // What is held at most after a decode call, where DecisionPolicy::evicts_in_decode. Means over KV
  // heads.
  struct Sizes {
    int64_t layer_slots = 0;  // the largest over layers
    int64_t layer_rows = 0;
    int64_t total_slots = 0;  // of all layers together
    int64_t total_rows = 0;
  };
  // The last prefill call ended n_prompt tokens after the beginning of the text, which has n now.
  virtual Sizes DecodeSizes(int64_t budget, int64_t n_prompt, int64_t n, int n_layers) const;
  // The same of one layer, which has a budget of its own because another method read the prompt;
  // total_slots and total_rows say nothing.
  virtual Sizes DecodeLayerSizes(int layer, int n_layers, int64_t budget, int64_t n) const {
    return {.layer_slots = LayerSlots(layer, n_layers, budget, n),
            .layer_rows = LayerRows(layer, n_layers, budget, n)};
  }
};

using MethodPtr = std::shared_ptr<const Method>;

}  // namespace winnow::compression
