#include "model/step.h"

#include <algorithm>
#include <numeric>
#include <string>

#include "base/check.h"
#include "model/parts.h"
#include "model/rope.h"
#include "model/row_blocks.h"

namespace winnow::model {
namespace {

using kernels::Matrix;

int64_t TokenCount(const TokenSpan& span) { return static_cast<int64_t>(span.tokens.size()); }

// Number of last rows of a span that are read after the last layer.
int64_t OutputCount(const TokenSpan& span) {
  const int64_t n = TokenCount(span);
  int64_t first = n;
  if (span.on_logits) first = std::min(first, span.logits_from);
  if (!span.last_logits.empty()) first = std::min(first, n - 1);
  return n - first;
}

bool IsRun(std::span<const int32_t> rows) {
  return rows.back() - rows.front() + 1 == static_cast<int32_t>(rows.size());
}

}  // namespace

Step::Step(const Model& model)
    : model_(model),
      backend_(model.backend()),
      runner_(model.parts(), model.backend(), work_),
      pass_(model.backend(), PassShapes(model.hyperparameters())),
      ropes_(model.n_ropes()) {}

Result<void> Step::Begin(std::span<const TokenSpan> spans, int64_t row_block) {
  WINNOW_CHECK(!active_);
  WINNOW_TRY(Check(spans));
  WINNOW_TRY(Prepare(spans, row_block));
  active_ = true;
  return {};
}

Result<bool> Step::Run(const Quota& quota) {
  WINNOW_CHECK(active_ && !running_);
  // If memory is refused, std::bad_alloc may leave Run, and its caller abandons the step. running_
  // must be false by then.
  struct Running {
    explicit Running(bool& running) : running_(running) { running_ = true; }
    ~Running() { running_ = false; }
    bool& running_;
  };
  const Running running(running_);
  Result<void> done;
  for (int64_t n = 0;
       n == 0 || (n < quota.n_blocks && (quota.deadline == quota.deadline.max() ||
                                         std::chrono::steady_clock::now() < quota.deadline));
       ++n) {
    done = RunUnit(quota);
    if (!done || !active_) break;
  }
  if (!done) {
    End();
    return done.error();
  }
  return !active_;
}

void Step::Drop(size_t span) {
  WINNOW_CHECK(active_ && !running_);
  for (size_t i = 0; i < states_.size(); ++i) {
    if (states_[i].number != span) continue;
    states_[i].dropped = true;
    if (in_layers() && next_row_ > 0) pass_.Skip(i);
  }
}

void Step::Abandon() {
  WINNOW_CHECK(!running_);
  End();
}

Result<void> Step::RunAll(std::span<const TokenSpan> spans, int64_t row_block) {
  WINNOW_TRY(Begin(spans, row_block));
  // If Run throws, end the step here: the caller does not know that it is active.
  struct Ended {
    explicit Ended(Step& step) : step_(step) {}
    ~Ended() {
      if (step_.active_) step_.Abandon();
    }
    Step& step_;
  };
  const Ended ended(*this);
  WINNOW_ASSIGN(const bool finished, Run());
  WINNOW_CHECK(finished);
  return {};
}

double Step::done() const {
  if (!active_ || n_rows_ == 0 || !in_layers()) return 1;
  return (layer_ + static_cast<double>(next_row_) / static_cast<double>(n_rows_)) /
         model_.hyperparameters().n_layers;
}

Result<void> Step::Check(std::span<const TokenSpan> spans) const {
  const int64_t vocabulary = model_.hyperparameters().vocabulary;
  size_t row = 0;
  for (const TokenSpan& span : spans) {
    const attention::Sequence& sequence = span.sequence;
    WINNOW_CHECK(sequence.cache != nullptr && model_.Fits(sequence.cache->config()));
    WINNOW_CHECK(span.first_position >= 0 && span.logits_from >= 0);
    WINNOW_CHECK(span.last_logits.empty() ||
                 static_cast<int64_t>(span.last_logits.size()) == vocabulary);
    WINNOW_TRY(LastRotation(span));
    for (const int32_t token : span.tokens) {
      if (token < 0 || token >= vocabulary) {
        return Error{"model: token " + std::to_string(token) + " (number " + std::to_string(row) +
                     ") is outside the vocabulary of " + std::to_string(vocabulary)};
      }
      ++row;
    }
    WINNOW_TRY(CheckRoom(span));
  }
  return {};
}

// If the span drops rows, the number of rows in later layers is not known yet: check layer 0 only.
Result<void> Step::CheckRoom(const TokenSpan& span) const {
  const int n_layers = span.rows_kept ? 1 : model_.hyperparameters().n_layers;
  for (int layer = 0; layer < n_layers; ++layer) {
    WINNOW_TRY(span.sequence.cache->CheckRoom(layer, TokenCount(span)));
  }
  return {};
}

Result<int64_t> Step::LastRotation(const TokenSpan& span) const {
  const cache::Cache& cache = *span.sequence.cache;
  const int64_t n = TokenCount(span);
  // Layer 0 stands for all: layers have their first eviction one after another, but in the same
  // step.
  const cache::PositionMode mode =
      cache.keys_rotated(0) ? cache::PositionMode::kOriginal : cache.config().storage.positions;
  int64_t last = span.first_position + n - 1;
  int64_t limit = model_.context();
  if (mode == cache::PositionMode::kCapped) {
    last = std::min(last, cache.config().storage.distance_cap);
    limit = model_.rope(0).max_positions();
  } else if (mode == cache::PositionMode::kReassigned) {
    int64_t max = 0;
    for (int layer = 0; layer < cache.config().shape.n_layers; ++layer) {
      const int n_heads = cache.config().shape.layer(layer).n_kv_heads;
      for (int head = 0; head < n_heads; ++head) {
        max = std::max(max, cache.n_slots(layer, head));
      }
    }
    last = max + n - 1;
  }
  if (last < limit) return last;
  return Error{"model: position " + std::to_string(last) + " is beyond the context of " +
               std::to_string(model_.context()) + " tokens"};
}

// Prepares buffers, RoPE tables and the embeddings of the tokens.
Result<void> Step::Prepare(std::span<const TokenSpan> spans, int64_t row_block) {
  WINNOW_CHECK(row_block > 0);
  states_.clear();
  n_rows_ = 0;
  n_outputs_ = 0;
  int64_t n_positions = 0;
  bool host_logits = false;
  for (size_t i = 0; i < spans.size(); ++i) {
    const TokenSpan& span = spans[i];
    if (span.tokens.empty()) continue;
    states_.push_back(
        {.span = &span, .number = i, .n_rows = TokenCount(span), .n_outputs = OutputCount(span)});
    n_rows_ += states_.back().n_rows;
    n_outputs_ += states_.back().n_outputs;
    WINNOW_ASSIGN(const int64_t last, LastRotation(span));
    n_positions = std::max(n_positions, last + 1);
    host_logits = host_logits || (span.on_logits && states_.back().n_outputs > 0);
  }
  row_block_ = row_block;
  layer_ = n_rows_ == 0 ? model_.hyperparameters().n_layers : 0;
  next_row_ = 0;
  if (n_rows_ == 0) return {};

  const int64_t n_block = std::min(n_rows_, row_block);
  WINNOW_TRY(work_.Reserve(model_, {.n_tokens = n_rows_,
                                    .n_rows = n_block,
                                    .n_logits = std::min({n_outputs_, n_block, kLogitRows}),
                                    .host_logits = host_logits}));
  for (size_t i = 0; i < ropes_.size(); ++i) {
    ropes_[i].reset();
    WINNOW_ASSIGN(ropes_[i], model_.rope(i).Cover(n_positions));
  }

  tokens_.clear();
  positions_.clear();
  for (const State& state : states_) {
    tokens_.insert(tokens_.end(), state.span->tokens.begin(), state.span->tokens.end());
    positions_.resize(tokens_.size());
    std::iota(positions_.end() - state.n_rows, positions_.end(), state.span->first_position);
  }
  backend_.GetRows(*model_.parts().embedding, tokens_, work_.hidden.Rows(n_rows_));
  return {};
}

// Computes a row block of a layer, or a block of logits.
Result<void> Step::RunUnit(const Quota& quota) {
  last_block_rows_ = 0;
  if (in_layers()) {
    if (next_row_ == 0) BeginLayer();
    WINNOW_TRY(RunBlock(quota.n_rows));
    if (next_row_ == n_rows_) EndLayer();
    return {};
  }
  if (n_rows_ > 0 && n_outputs_ > 0) EmitLogits();
  if (n_rows_ == 0 || next_row_ == n_outputs_) End();
  return {};
}

void Step::BeginLayer() {
  pass_spans_.clear();
  // Only the logits read the last layer's output; the taps also need its attention.
  for (const State& state : states_) {
    pass_spans_.push_back({.sequence = &state.span->sequence,
                           .n_rows = state.n_rows,
                           .first_output = in_last_layer() ? state.n_rows - state.n_outputs : 0});
  }
  pass_.Start(layer_, *ropes_[model_.rope_of_layer(layer_)], pass_spans_);
  for (size_t i = 0; i < states_.size(); ++i) {
    if (states_[i].dropped) pass_.Skip(i);
  }
  outputs_.clear();
}

int64_t Step::BlockRows(int64_t max_rows) const {
  if (!backend_.batch_invariant()) return NextBlock(n_rows_ - next_row_, row_block_, max_rows);
  return NextInvariantBlock(pass_spans_, next_row_, row_block_, max_rows);
}

Result<void> Step::RunBlock(int64_t max_rows) {
  const int64_t n = BlockRows(max_rows);
  const Matrix x = work_.hidden.Rows(next_row_, n);
  runner_.Project(layer_, x);
  const LayerSpec& spec = model_.hyperparameters().layer(layer_);
  const Workspace::Projected projected = work_.ProjectedRows(spec, n);
  WINNOW_TRY(pass_.Run(
      {.q = projected.q,
       .k = projected.k,
       .v = projected.v,
       .out = work_.AttendedRows(spec, 0, n),
       .q_and_k = projected.q_and_k,
       .positions =
           std::span(positions_).subspan(static_cast<size_t>(next_row_), static_cast<size_t>(n)),
       .hidden = x},
      attention::LayerPass::Decisions::kLater));
  Result<void> decided;
  CompleteBlock(x, [&] { decided = pass_.Decide(); });
  if (!decided) return decided.error();
  for (size_t i = 0; i < states_.size(); ++i) states_[i].dropped |= pass_.skipped(i);
  next_row_ += n;
  last_block_rows_ = n;
  return {};
}

// The last layer completes only rows that are read. If they are not contiguous, such as the last
// rows of several prompts, they are moved together first, so that their products share the weights.
void Step::CompleteBlock(const Matrix& x, const std::function<void()>& overlapped) {
  if (!in_last_layer()) return runner_.Complete(layer_, x, 0, overlapped);
  rows_.clear();
  int64_t first = 0;  // row of the layer
  for (const State& state : states_) {
    const int64_t end = first + state.n_rows;
    for (int64_t row = std::max(end - state.n_outputs, next_row_);
         row < std::min(end, next_row_ + x.rows); ++row) {
      rows_.push_back(static_cast<int32_t>(row - next_row_));
    }
    first = end;
  }
  if (rows_.empty()) return overlapped();
  const auto n = static_cast<int64_t>(rows_.size());
  int64_t at = rows_.front();
  if (!IsRun(rows_)) {
    MoveRows(x, rows_);
    MoveRows(work_.normed.Rows(x.rows), rows_);
    MoveRows(work_.AttendedRows(model_.hyperparameters().layer(layer_), 0, x.rows), rows_);
    at = 0;
  }
  runner_.Complete(layer_, x.Rows(at, n), at, overlapped);
  for (int64_t i = 0; i < n; ++i) outputs_.push_back(static_cast<int32_t>(next_row_ + at + i));
}

// Removes the rows that no later layer computes. After the last layer, only outputs_ matters.
void Step::EndLayer() {
  const auto drops = [](const State& state) {
    return state.dropped || static_cast<bool>(state.span->rows_kept);
  };
  if (!in_last_layer() && std::any_of(states_.begin(), states_.end(), drops)) DropRows();
  ++layer_;
  next_row_ = 0;
  if (states_.empty()) layer_ = model_.hyperparameters().n_layers;
}

void Step::DropRows() {
  rows_.clear();
  int64_t first = 0;
  for (State& state : states_) {
    const int64_t n = state.n_rows;
    const std::span<const int32_t> kept = state.span->rows_kept && !state.dropped
                                              ? state.span->rows_kept(layer_)
                                              : std::span<const int32_t>();
    if (state.dropped) {
      n_outputs_ -= state.n_outputs;
    } else if (kept.empty()) {
      for (int64_t row = 0; row < n; ++row) rows_.push_back(static_cast<int32_t>(first + row));
    } else {
      WINNOW_CHECK(kept.back() == n - 1);
      for (const int32_t row : kept) rows_.push_back(static_cast<int32_t>(first) + row);
      state.n_rows = static_cast<int64_t>(kept.size());
    }
    first += n;
  }
  std::erase_if(states_, [](const State& state) { return state.dropped; });
  if (static_cast<int64_t>(rows_.size()) == n_rows_) return;
  MoveRows(work_.hidden.Rows(n_rows_), rows_);
  for (size_t i = 0; i < rows_.size(); ++i) {
    positions_[i] = positions_[static_cast<size_t>(rows_[i])];
  }
  n_rows_ = static_cast<int64_t>(rows_.size());
}

// Row rows[i] becomes row i. `rows` ascends.
void Step::MoveRows(const Matrix& matrix, std::span<const int32_t> rows) {
  row_numbers_.resize(rows.size());
  std::iota(row_numbers_.begin(), row_numbers_.end(), 0);
  constexpr auto kFloatBytes = static_cast<int64_t>(sizeof(float));
  backend_.MoveRows(*matrix.storage, matrix.offset * kFloatBytes, matrix.stride * kFloatBytes, rows,
                    row_numbers_);
}

void Step::BeginLogits() {
  first_output_ = outputs_.front();
  next_span_ = 0;
  next_span_row_ = 0;
  if (IsRun(outputs_)) return;
  MoveRows(work_.hidden.Rows(n_rows_), outputs_);
  first_output_ = 0;
}

void Step::EmitLogits() {
  if (next_row_ == 0) BeginLogits();
  const int64_t n = std::min(work_.n_logits(), n_outputs_ - next_row_);
  const Matrix logits = runner_.Logits(work_.hidden.Rows(first_output_ + next_row_, n));
  for (int64_t row = 0; row < n;) {
    const State& state = states_[next_span_];
    const int64_t n_of_span = std::min(n - row, state.n_outputs - next_span_row_);
    if (n_of_span > 0) EmitRows(state, next_span_row_, logits.Rows(row, n_of_span));
    row += n_of_span;
    next_span_row_ += n_of_span;
    if (next_span_row_ < state.n_outputs) continue;
    ++next_span_;
    next_span_row_ = 0;
  }
  next_row_ += n;
}

// `first`: number of the first row among the span's outputs.
void Step::EmitRows(const State& state, int64_t first, const Matrix& logits) {
  if (state.dropped) return;
  const TokenSpan& span = *state.span;
  if (!span.last_logits.empty() && first + logits.rows == state.n_outputs) {
    backend_.Read(logits.Rows(logits.rows - 1, 1), span.last_logits);
  }
  if (!span.on_logits) return;
  const int64_t token = TokenCount(span) - state.n_outputs + first;
  const int64_t n_skipped = std::max<int64_t>(0, span.logits_from - token);
  if (n_skipped >= logits.rows) return;
  const Matrix wanted = logits.Rows(n_skipped, logits.rows - n_skipped);
  const std::span<float> host =
      std::span(work_.host_logits).first(static_cast<size_t>(wanted.rows * wanted.cols));
  backend_.Read(wanted, host);
  span.on_logits(token + n_skipped, host);
}

void Step::End() {
  active_ = false;
  for (auto& rope : ropes_) rope.reset();
  // Free the hidden states of a long prompt: the single tokens that follow do not need them.
  if (work_.hidden.rows() > row_block_) work_.hidden.Free();
}

}  // namespace winnow::model
