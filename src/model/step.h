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
  cache::Position first_position = 0;  // position of tokens[0]; the others follow

  // on_logits receives the logits of the tokens [logits_from, tokens.size()) in blocks of rows, in
  // order: rows [first_row, first_row + n), n * vocabulary floats. Optional.
  int64_t logits_from = 0;
  std::function<void(int64_t first_row, std::span<const float> logits)> on_logits = {};
  // Out [vocabulary]: logits of the last token. Empty: not requested.
  std::span<float> last_logits = {};

  // Returns the rows of the span (among those that `layer` computed) that later layers still
  // compute, ascending and including the last row; empty: all. Called when the layer is done for
  // all spans. Requires: the span wants logits of the last token only.
  std::function<std::span<const int32_t>(int layer)> rows_kept = {};
};

// Limits of a call of Step::Run, which does at least one row block or one block of logits.
struct Quota {
  int64_t n_blocks = std::numeric_limits<int64_t>::max();
  // Maximum rows of a block, if the row_block of Begin would take too long. Approximate: blocks
  // avoid leaving only a few rows for the last block (NextBlock in row_blocks.h).
  int64_t n_rows = std::numeric_limits<int64_t>::max();
  std::chrono::steady_clock::time_point deadline = std::chrono::steady_clock::time_point::max();
};

// One pass of some tokens of some sequences through the model. The rows of all spans are contiguous
// and go through layer 0, then layer 1, and so on. Inside a layer they are processed in row blocks,
// so that only the hidden states and the caches grow with the step. A block reads every weight once
// for all spans; attention, methods and callbacks are per span. The results of a span differ from
// those of a step with this span alone only by the rounding of products, if the backend multiplies
// that many rows differently.
//
// A step can be suspended after every row block and resumed: other steps of the model may run in
// between, on other sequences. It owns its buffers and keeps them for the next step. One thread at
// a time.
class Step {
 public:
  // The model must outlive the step.
  explicit Step(const Model& model);

  // Begins a step that computes `row_block` rows at a time inside a layer, which limits the scratch
  // memory. Errors, before anything changes: token id outside the vocabulary, cache full, position
  // beyond the context, memory refused. The spans and the objects they point to must stay valid
  // until the step is finished or abandoned. Requires: no step is active.
  Result<void> Begin(std::span<const TokenSpan> spans, int64_t row_block = 512);
  // Runs until the quota is used up. Returns true when the step is finished. Errors: those of
  // after_layer, and a full cache; the step is then abandoned. An error of a sequence that has
  // attention::Sequence::failure goes there instead and ends only that sequence.
  Result<bool> Run(const Quota& quota = {});
  // Excludes a span (its index in Begin) from the rest of the step, which does not touch its
  // sequence any more; its cache then holds an undefined part of the tokens. Requires: a step is
  // active, and Run is not executing.
  void Drop(size_t span);
  // Ends the active step, if any. The caches then hold an undefined part of the tokens.
  void Abandon();

  // Begin, and Run to the end.
  Result<void> RunAll(std::span<const TokenSpan> spans, int64_t row_block = 512);

  bool active() const { return active_; }
  // Rows of the last block that Run computed; 0: none, or a block of logits.
  int64_t last_block_rows() const { return last_block_rows_; }
  // Share of the active step's rows and layers that is done, 0..1.
  double done() const;

 private:
  // One span in the active step.
  struct State {
    const TokenSpan* span = nullptr;
    size_t number = 0;      // index in Begin
    bool dropped = false;   // its rows are removed at the end of the layer
    int64_t n_rows = 0;     // rows that the current layer computes
    int64_t n_outputs = 0;  // the last ones of them, which are read after the last layer
  };

  Result<void> Check(std::span<const TokenSpan> spans) const;
  Result<void> CheckRoom(const TokenSpan& span) const;
  // The highest position that a query or key of the span is rotated to. Error: it is beyond the
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
  int64_t next_row_ = 0;      // of the layer; afterwards of the logits
  int64_t first_output_ = 0;  // hidden row of the first logits
  size_t next_span_ = 0;      // of the logits
  int64_t next_span_row_ = 0;
  std::vector<State> states_;
  std::vector<attention::LayerPass::Span> pass_spans_;
  std::vector<int32_t> tokens_;             // of all spans
  std::vector<cache::Position> positions_;  // [row]
  std::vector<int32_t> outputs_;            // hidden rows after the last layer, [output]
  std::vector<int32_t> rows_, row_numbers_;
};

}  // namespace winnow::model
