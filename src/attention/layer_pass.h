#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "attention/attention_policy.h"
#include "attention/row_collector.h"
#include "attention/rows.h"
#include "attention/tap_collector.h"
#include "base/result.h"
#include "cache/cache.h"
#include "kernels/ops.h"

namespace winnow::attention {

// The inputs of attention in one layer for some consecutive tokens of a sequence.
struct Projections {
  int layer = 0;
  std::span<const cache::Position> positions;  // [row]
  bool rotated = false;                        // q and k are after RoPE
  kernels::Matrix q;                           // [row, n_heads * key_dim]
  kernels::Matrix k;                           // [row, n_kv_heads * key_dim]
  kernels::Matrix v;                           // [row, n_kv_heads * value_dim]
};

// One layer of a sequence whose attention over all rows of the step is done.
struct LayerDone {
  int layer = 0;
  const kernels::Taps& taps;       // as requested by Sequence::taps
  const kernels::RopeTable& rope;  // the table that rotated the keys, for Cache::Unrotate
  const Rows* rows = nullptr;      // as requested by Sequence::rows
  float scale = 0;                 // of q·k before the softmax
};

// One sequence in a step; the same for all layers.
struct Sequence {
  cache::Cache* cache = nullptr;  // no two sequences of a step share one

  // What attention reports in every layer. `after_layer` decides about the layer and may Apply
  // plans to it or to earlier layers: attention no longer reads them in this step.
  kernels::TapSpec taps = {};
  RowSpec rows = {};
  std::function<Result<void>(const LayerDone& done)> after_layer = {};
  // If the sequence has a single row, one thread runs after_layer while the others continue with
  // the model: see LayerPass::Decisions.
  bool decides_on_one_thread = false;
  // If set, an error of this sequence (from after_layer, or a full cache) is stored here, and the
  // other sequences continue without it. Otherwise it ends the step for all.
  std::optional<Error>* failure = nullptr;

  AttentionPolicy policy = {};
  // If set, the number of entries a policy selected is added, summed over query heads and layers.
  int64_t* n_attended = nullptr;

  // Records queries, keys and values: called for every row block of every layer before RoPE, and
  // again after RoPE unless the layer's keys are stored before it.
  std::function<void(const Projections& projections)> on_projections = {};
};

// The core loop of winnow, one layer at a time: append to the cache, attend, collect the taps, let
// the method decide and apply its plans. Prompts, batches of single tokens, replay and the tests of
// methods all go through it.
//
// A layer has the rows of one or several sequences, one sequence after another. They arrive in row
// blocks; a block may hold the end of one sequence's rows and the beginning of the next one's.
class LayerPass {
 public:
  struct Shape {
    int n_heads = 0;  // query heads
    int key_dim = 0;  // per head
    float scale = 0;  // of q·k before the softmax
  };
  // Computes attention, as Backend::AttendAll does.
  using Attend = std::function<void(std::span<const kernels::Attention> attentions)>;

  // `shapes`: [layer], or a single one if all layers are alike. `attend` replaces the backend's
  // attention (tests: given weights).
  LayerPass(kernels::Backend& backend, std::vector<Shape> shapes, Attend attend = {});
  LayerPass(kernels::Backend& backend, const Shape& shape, Attend attend = {})
      : LayerPass(backend, std::vector<Shape>{shape}, std::move(attend)) {}

  // One sequence's rows in the current layer.
  struct Span {
    const Sequence* sequence = nullptr;
    int64_t n_rows = 0;        // at least 1
    int64_t first_output = 0;  // rows before it are attended for the taps only; without need, their
                               // `out` is not written
  };
  // Begins a layer. `spans` is copied; the sequences and `rope` must live until the layer is done.
  void Start(int layer, const kernels::RopeTable& rope, std::span<const Span> spans);

  // The next rows of the layer, at most as many as remain.
  struct Rows {
    kernels::Matrix q;    // [n, n_heads * key_dim]
    kernels::Matrix k;    // [n, n_kv_heads * key_dim]
    kernels::Matrix v;    // [n, n_kv_heads * value_dim]
    kernels::Matrix out;  // [n, n_heads * value_dim]
    // q and k as one matrix, before RoPE: both are rotated in place if the layer's keys are stored
    // rotated. If empty, q and k are already in the form the keys are stored in. If keys are stored
    // after a Hadamard transform, the transform is applied in place.
    kernels::Matrix q_and_k = {};
    std::span<const cache::Position> positions;  // [n]
    kernels::Matrix hidden = {};                 // [n, embedding], the layer's input, for norms
  };
  // When a sequence's after_layer runs. At once: as soon as its last row is attended, while what
  // attention read is still in the CPU's caches. Later: single rows with decides_on_one_thread wait
  // for Decide, so that the other threads need not wait for them.
  enum class Decisions { kAtOnce, kLater };
  // Errors: a full cache (Cache::CheckRoom tells beforehand), and those of after_layer. A sequence
  // with a `failure` stores its errors there and is skipped from then on. After any other error the
  // caches hold an undefined part of the rows.
  Result<void> Run(const Rows& rows, Decisions decisions = Decisions::kAtOnce);
  // Runs the decisions that the last Run postponed. Call it before the next Run; the contents of
  // the rows may have changed. Errors: as Run's.
  Result<void> Decide();

  // Leaves a span out of the rest of the layer: its rows still come, but its sequence is not
  // touched any more.
  void Skip(size_t span) { states_[span].skipped = true; }
  bool skipped(size_t span) const { return states_[span].skipped; }

 private:
  // The part of one sequence in the current row block.
  struct Piece {
    size_t span = 0;
    int64_t first = 0;  // row of the block
    int64_t n = 0;
  };
  struct State {
    Span span;
    TapCollector taps;
    RowCollector row_collector;
    int64_t n_done = 0;       // rows
    int64_t first_query = 0;  // earlier rows need no attention
    int64_t n_attended = 0;   // entries selected by the policy
    bool skipped = false;
  };

  void Cut(int64_t n_rows);
  void ReportProjections(const Rows& rows, const Piece& piece, bool rotated) const;
  // Collect what RowSpec asks for, before RoPE and after it.
  void CollectBefore(const Rows& rows, const Piece& piece);
  void CollectQueries(const Rows& rows, const Piece& piece);
  void Rotate(const Rows& rows);
  void Transform(const Rows& rows);
  // Appends the rows [first, first + n) of a piece, which attention can take together.
  Result<void> AppendRows(const Rows& rows, const Piece& piece, int64_t first, int64_t n);
  Result<void> AttendPiece(const Rows& rows, const Piece& piece);
  // Stores an error of the piece in its sequence's `failure`, if it has one.
  Result<void> IsolateFailure(const Piece& piece, const Result<void>& outcome);
  void AttendRows(const Rows& rows, const Piece& piece, int64_t first, int64_t n);
  // Attends all pieces of one row in one call.
  Result<void> AttendSingles(const Rows& rows);
  // Attention over the rows [first, end); with taps if `spec` asks for any.
  kernels::Attention Make(const Rows& rows, State& state, int64_t first, int64_t end,
                          const kernels::TapSpec& spec);
  void CollectResult(State& state, const kernels::Attention& attention) const;
  bool is_last(const Piece& piece) const;  // of its sequence
  Result<void> Finish(const Piece& piece);
  Result<void> NotifyLayerDone(State& state);
  bool skipped(const Piece& piece) const { return states_[piece.span].skipped; }
  bool rotated(const State& state) const {
    return state.skipped || state.span.sequence->cache->keys_rotated(layer_);
  }

  kernels::Backend& backend_;
  std::vector<Shape> shapes_;
  Shape shape_;  // of the current layer
  Attend attend_;
  int layer_ = 0;
  const kernels::RopeTable* rope_ = nullptr;
  // Kept from step to step, to reuse their memory.
  std::vector<State> states_;  // the first n_spans_ are in use
  size_t n_spans_ = 0;
  size_t at_ = 0;  // the span whose rows come next
  std::vector<Piece> pieces_;
  std::vector<Piece> undecided_;
  std::vector<kernels::Attention> attentions_;  // of pieces of one row
  std::vector<size_t> attended_;                // [attention]: index of its piece
};

}  // namespace winnow::attention
