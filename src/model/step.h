#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <limits>
#include <memory>
#include <span>
#include <vector>

#include "attention/layer_pass.h"
#include "base/result.h"
#include "kernels/ops.h"
#include "model/layer_runner.h"
#include "model/model.h"
#include "model/workspace.h"

namespace winnow::model {

// The next tokens of one sequence in a step: one generated token, a prompt, or a chunk of one.
struct TokenSpan {
  attention::Sequence sequence;
  std::span<const int32_t> tokens;
  cache::Position first_position = 0;  // of tokens[0]; the others follow

  // Logits of the tokens from number `logits_from` on are handed out in blocks of rows, in order:
  // rows [first_row, first_row + n), n * vocabulary floats. Not called without on_logits.
  int64_t logits_from = 0;
  std::function<void(int64_t first_row, std::span<const float> logits)> on_logits = {};
  // Out [vocabulary]: logits of the last token. Empty: not wanted.
  std::span<float> last_logits = {};

  // Rows of the span (as given to the layer before) that the layers after this one still compute,
  // ascending, the last row among them; empty: all. Asked when the layer is done for all spans.
  // Requires: logits of the last token only.
  std::function<std::span<const int32_t>(int layer)> rows_kept = {};
};

// How long Step::Run works. At least one row block, or one block of logits.
struct Quota {
  int64_t n_blocks = std::numeric_limits<int64_t>::max();
  // Rows of a block, where those of Begin would take too long. So few that products would be
  // computed in another way are not left over for the last block.
  int64_t n_rows = std::numeric_limits<int64_t>::max();
  std::chrono::steady_clock::time_point deadline = std::chrono::steady_clock::time_point::max();
};

// One pass of some tokens of some sequences through the model. The rows of all spans lie one after
// another and go through layer 0, then layer 1, ...; inside a layer they go through in row blocks,
// so that only the hidden states and the caches grow with the step. Every weight is read once a
// block for all spans; attention, methods and callbacks are each span's own. What a span gets
// differs from what it gets alone only by the rounding of products, where the backend multiplies so
// many rows in another way.
//
// A step can be left after every row block and taken up again: other steps of the model may run in
// between, on other sequences. It owns its buffers, which stay for the next step; one thread at a
// time.
class Step {
 public:
  // The model outlives the step.
  explicit Step(const Model& model);

  // Begins a step; `row_block` rows are computed at a time inside a layer, which bounds the scratch
  // memory. Errors, before anything is changed: token id outside the vocabulary, cache full,
  // position beyond the context, memory refused. The spans, and what they point to, stay until the
  // step is finished or abandoned.
  // Requires: no step is active.
  Result<void> Begin(std::span<const TokenSpan> spans, int64_t row_block = 512);
  // Works until the quota is used up. True: the step is finished. Errors: those of after_layer, and
  // a full cache, but for sequences that keep them to themselves (attention::Sequence::failure);
  // the step is then abandoned.
  Result<bool> Run(const Quota& quota = {});
  // Leaves a span (its number in Begin) out of the rest of the step: its sequence is not touched
  // any more, and what its cache holds of the tokens is undefined. Between two calls of Run.
  void Drop(size_t span);
  // Drops the active step, if any. The caches then hold an undefined part of the tokens.
  void Abandon();

  // Begin, and Run to the end.
  Result<void> RunAll(std::span<const TokenSpan> spans, int64_t row_block = 512);

  bool active() const { return active_; }
  // Of the last block that Run computed; 0: none, or one of logits.
  int64_t last_block_rows() const { return last_block_rows_; }
  // Share of the row blocks of the active step that are done, 0..1.
  double done() const;

 private:
  // One span in the active step.
  struct State {
    const TokenSpan* span = nullptr;
    size_t number = 0;      // in Begin
    bool dropped = false;   // its rows leave at the end of the layer
    int64_t n_rows = 0;     // that the current layer computes
    int64_t n_outputs = 0;  // of them the last ones, which are read after the last layer
  };

  Result<void> Check(std::span<const TokenSpan> spans) const;
  Result<void> CheckRoom(const TokenSpan& span) const;
  // The farthest position that a query or key of the span is rotated to. Error: it is beyond the
  // context.
  Result<int64_t> LastRotation(const TokenSpan& span) const;
  Result<void> Prepare(std::span<const TokenSpan> spans, int64_t row_block);
  Result<void> RunUnit(const Quota& quota);
  void BeginLayer();
  Result<void> RunBlock(int64_t max_rows);
  int64_t BlockRows(int64_t max_rows) const;
  void CompleteBlock(const kernels::Matrix& x, const std::function<void()>& overlapped);
  void EndLayer();
  void DropRows();
  void BeginLogits();
  void EmitLogits();
  void EmitRows(const State& state, int64_t first, const kernels::Matrix& logits);
  void MoveRows(const kernels::Matrix& matrix, std::span<const int32_t> rows);
  void End();
  bool in_layers() const { return layer_ < model_.hyperparameters().n_layers; }
  bool in_last_layer() const { return layer_ + 1 == model_.hyperparameters().n_layers; }

  const Model& model_;
  kernels::Backend& backend_;
  Workspace work_;
  LayerRunner runner_;
  attention::LayerPass pass_;
  std::vector<std::shared_ptr<const kernels::RopeTable>> ropes_;  // [Model::rope_of_layer]

  bool active_ = false;
  bool running_ = false;
  int64_t row_block_ = 0;
  int64_t last_block_rows_ = 0;
  int64_t n_rows_ = 0;     // of the current layer
  int64_t n_outputs_ = 0;  // of all spans
  int layer_ = 0;
  int64_t next_row_ = 0;      // of the layer; then of the logits
  int64_t first_output_ = 0;  // hidden row of the first logits
  size_t next_span_ = 0;      // of the logits
  int64_t next_span_row_ = 0;
  std::vector<State> states_;
  std::vector<attention::LayerPass::Span> pass_spans_;
  std::vector<int32_t> tokens_;             // of several spans
  std::vector<cache::Position> positions_;  // [row]
  std::vector<int32_t> outputs_;            // hidden rows after the last layer, [output]
  std::vector<int32_t> rows_, row_numbers_;
};

}  // namespace winnow::model
