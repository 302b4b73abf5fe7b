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

// The interface of compression methods. A method moves no memory: it reads taps and its own state,
// and returns plans. Everything it keeps from step to step lies in the cache's columns and numbers,
// so a method is a value that any number of sequences can share.
namespace winnow::compression {

using cache::Plan;
using cache::Position;
using cache::Slot;

// After a prompt call the model reads the call's tokens once more, after a text that asks it to
// repeat them: the attention of this replay predicts what later questions need of the prompt. Its
// entries are dropped layer by layer as soon as the method has seen them; no logits are computed. A
// replay happens only if something must be evicted (n_seen above the budget).
struct ReplaySpec {
  std::string text = {};       // before the first chunk's tokens; empty: no replay
  std::string next_text = {};  // before later chunks, with n_repeated tokens before the chunk
  int n_repeated = 8;
  int64_t chunk = 2048;        // tokens of the prompt replayed at a time; fewer if memory is short
  kernels::TapSpec taps = {};  // of every chunk of the replay
  attention::RowSpec rows = {};

  bool any() const { return !text.empty(); }
  // The most entries a layer holds for the replay of a call of n tokens, with any tokenizer.
  int64_t MaxTokens(int64_t n) const;
  bool operator==(const ReplaySpec&) const = default;
};

// One part of a call's tokens, replayed at once.
struct ReplayChunk {
  int64_t first = 0;  // first token of the call in this chunk
  int64_t n = 0;
  int64_t n_text = 0;  // tokens of the replay's text before those of the call
};

// What a method needs from attention, and the state it keeps between steps.
struct Needs {
  kernels::TapSpec prefill = {};  // calls of several tokens: a prompt, or a chunk of one
  kernels::TapSpec decode = {};   // calls of one token after the prompt
  cache::StateShape state = {};
  // Above 0: prefill.last_sums is set in each call to this share of the sequence's tokens.
  double last_sums_share = 0;
  attention::RowSpec prompt_rows = {};  // of prefill calls
  ReplaySpec replay = {};
  bool error_profiles = false;  // LayerCall::profiles
  bool operator==(const Needs&) const = default;
};

// An entry that competes with entries of other KV heads.
struct Candidate {
  double score = 0;
  Position position = 0;
  int kv_head = 0;
};

// Buffers reused from call to call, so that a decode step allocates nothing.
struct Scratch {
  std::vector<std::vector<double>> scores;  // [kv_head][rank in the region]
  std::vector<int64_t> sizes;               // [kv_head]
  std::vector<int32_t> ranks;
  std::vector<std::vector<int32_t>> evicted;  // [kv_head], ranks
  std::vector<double> numbers;
  std::vector<int32_t> indices;
  std::vector<std::vector<int32_t>>
      all_slots;  // [list][slot] = slot; code that changes it restores it
  std::vector<float> floats;
  std::vector<Candidate> candidates;
  std::array<kernels::Taps, 4> reduced;  // [TapSpec::Reduce], for readers that share taps
};

// The plans of one call of Decide. The storage is reused: only the first n_plans are valid.
class PlanList {
 public:
  // Adds an empty plan for a layer, with one HeadPlan per KV head.
  Plan& Add(int layer, int n_kv_heads);
  void Clear() {
    n_plans_ = 0;
    again = false;
    kept_rows.clear();
  }
  std::span<const Plan> plans() const { return std::span(plans_).first(n_plans_); }

  // Set by methods whose next decision depends on this one's effect (merges one after another): the
  // caller applies the plans and calls Decide for the same layer again, with the next
  // LayerCall::pass.
  bool again = false;
  // Methods with RowPolicy::kKept: rows of the call, 0..n_new-1, that the layers after this one
  // still compute, ascending. Empty: all rows.
  std::vector<int32_t> kept_rows;

 private:
  std::vector<Plan> plans_;
  size_t n_plans_ = 0;
};

// What a method learns in a prompt call before it decides. Lives from the first layer of the call
// to its end. Working memory like taps; nothing else keeps a reference.
class Memory {
 public:
  virtual ~Memory() = default;
  // A copy, to decide with another budget from what was learnt.
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

// How many of the newest entries stay when a whole prompt of n_new tokens follows earlier text: it
// may be a question, and the answer needs its words. All of them if they fit into half of the
// budget, otherwise the last ones. Only methods that choose among all entries alike use this;
// others keep new entries anyway.
inline int64_t ProtectedOfLaterPrompt(int64_t n_new, int64_t budget) {
  constexpr int64_t kEnd = 32;
  return n_new <= budget / 2 ? n_new : std::min(kEnd, budget / 2);
}

// The input of a decision: one layer whose attention over the call's tokens is done. The call's own
// entries are the newest n_new of every head.
struct LayerCall {
  kernels::Backend& backend;
  const cache::Cache& cache;
  cache::StateView state;  // the methods' state in that cache, writable
  Scratch& scratch;
  const kernels::Taps* taps = nullptr;  // as needs() asked for this phase
  Phase phase = Phase::kPrefill;
  int pass = 0;  // how often Decide already ran for this layer's tokens (PlanList::again); taps are
                 // only valid in pass 0, because slots move afterwards
  int layer = 0;
  int n_layers = 0;
  int n_q_heads = 0;
  int64_t n_new = 0;
  int64_t n_seen = 0;            // tokens of the sequence so far, the new ones included
  int64_t budget = 0;            // slots per KV head; 0 for methods without one
  int64_t n_protected = 0;       // newest entries that are never evicted (ProtectedOfLaterPrompt)
  cache::StateShape first = {};  // where this method's state begins; what lies before belongs to
                                 // another method of the same cache
  const attention::Rows* rows = nullptr;     // requested: Needs::prompt_rows, ReplaySpec::rows
  const kernels::RopeTable* rope = nullptr;  // the table that rotated them; not set in DecideAll
  float scale = 0;                           // of q·k before the softmax; not set in DecideAll
  Memory* memory = nullptr;                  // from MakeMemory; set in prefill calls
  const OutputProjections* projections = nullptr;  // null: unknown (recordings)
  const ErrorProfiles* profiles = nullptr;         // the model's, if needs() asked for them
  const OnErrorCurve* on_error_curve = nullptr;    // receives error curves; null: not wanted
  ReplayChunk replay = {};                         // set in ObserveReplay
  bool replayed = false;  // set in DecideAll: whether the call was replayed

  int n_kv_heads() const { return cache.config().shape.n_kv_heads; }
  int group() const { return n_q_heads / n_kv_heads(); }
  // The same call with different taps.
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

  // Capability: which entries stay depends on the queries of the text (attention weights), on those
  // of its last tokens above all. Entries kept for one question serve another one worse.
  bool query_dependent() const;
  // Capability: the attention of the last prompt tokens decides. If a document is read without a
  // question, the entries that its last tokens attend to stay, not those that a question will need.
  bool needs_question() const;

  // Runs after the attention of every layer in every call, layer by layer. Updates the state, and
  // adds plans that bring the cache to its size, in this layer or in layers before it (these may
  // only shrink). Plans name slots of the cache as it is now; the caller applies them in order. In
  // position modes other than kOriginal, the keys of a layer with more than `budget` slots are
  // stored before RoPE when this runs. For a prompt, this is part of the row block that ends the
  // layer and is not cut into pieces as DecideAll is. Requires: budget >= traits().budget.min if a
  // budget is needed.
  virtual void Decide(const LayerCall& call, PlanList& plans) const = 0;

  // For methods that learn in one layer, or in one pass, what they need in another. Null: the
  // method needs no memory.
  virtual std::unique_ptr<Memory> MakeMemory() const { return nullptr; }
  // Runs after the attention of every layer in every chunk of the replay. The newest call.n_new
  // entries of every head belong to the replay and are removed when this returns.
  virtual void ObserveReplay(const LayerCall&) const {}
  // With DecisionPolicy::Prefill::kAtEnd: runs after a prefill call, when all layers and the replay
  // are done, and adds plans for any layers. Long work is cut into pieces of some tens of
  // milliseconds, so that other sequences get tokens in between: PlanList::again asks for the next
  // piece. The cuts do not change the result. There are neither taps nor rows. Requires: positions
  // are original, or `plans` stays empty.
  virtual void DecideAll(const LayerCall&, PlanList&) const {}

  // The most slots any KV head may hold after a call, over all layers, for a prompt of n tokens
  // under `budget`: the caller reserves room for them. Growth in decode is not counted. Like the
  // totals below, it never falls when n or the budget grows.
  virtual int64_t MaxSlots(int64_t budget, int64_t n) const;
  // Slots of all layers together, per KV head (PyramidKV and similar methods give layers different
  // sizes).
  virtual int64_t TotalSlots(int64_t budget, int64_t n, int n_layers) const;

  // Rows of keys and values stored for TotalSlots; the same number unless
  // StoragePolicy::shared_rows.
  virtual int64_t TotalRows(int64_t budget, int64_t n, int n_layers) const {
    return TotalSlots(budget, n, n_layers);
  }

  // The most slots a layer holds after a prefill call, as the mean over its KV heads, for a text of
  // n tokens. All layers together hold at most TotalSlots, which may be less than the sum.
  virtual int64_t LayerSlots(int layer, int n_layers, int64_t budget, int64_t n) const;
  virtual int64_t LayerRows(int layer, int n_layers, int64_t budget, int64_t n) const {
    return LayerSlots(layer, n_layers, budget, n);
  }

  // Upper bounds after a decode call, for methods with DecisionPolicy::evicts_in_decode. Means over
  // KV heads.
  struct Sizes {
    int64_t layer_slots = 0;  // the largest over layers
    int64_t layer_rows = 0;
    int64_t total_slots = 0;  // of all layers together
    int64_t total_rows = 0;
  };
  // n_prompt: length of the text at the end of the last prefill call; n: its length now.
  virtual Sizes DecodeSizes(int64_t budget, int64_t n_prompt, int64_t n, int n_layers) const;
  // The same for one layer, which has a budget of its own because another method compressed the
  // prompt. total_slots and total_rows are not set.
  virtual Sizes DecodeLayerSizes(int layer, int n_layers, int64_t budget, int64_t n) const {
    return {.layer_slots = LayerSlots(layer, n_layers, budget, n),
            .layer_rows = LayerRows(layer, n_layers, budget, n)};
  }
};

using MethodPtr = std::shared_ptr<const Method>;

}  // namespace winnow::compression
