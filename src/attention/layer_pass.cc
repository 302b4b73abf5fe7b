#include "attention/layer_pass.h"

#include <algorithm>
#include <utility>

#include "attention/attend.h"
#include "base/check.h"

namespace winnow::attention {
namespace {

using kernels::Attention;
using kernels::TapSpec;

std::span<const cache::Position> Part(std::span<const cache::Position> positions, int64_t first,
                                      int64_t n) {
  return positions.subspan(static_cast<size_t>(first), static_cast<size_t>(n));
}

}  // namespace

LayerPass::LayerPass(kernels::Backend& backend, std::vector<Shape> shapes, Attend attend)
    : backend_(backend), shapes_(std::move(shapes)), attend_(std::move(attend)) {
  if (attend_) return;
  attend_ = [&backend](std::span<const Attention> attentions) { backend.AttendAll(attentions); };
}

void LayerPass::Start(int layer, const kernels::RopeTable& rope, std::span<const Span> spans) {
  undecided_.clear();  // left by a step that was abandoned
  layer_ = layer;
  shape_ = shapes_.size() == 1 ? shapes_.front() : shapes_.at(static_cast<size_t>(layer));
  rope_ = &rope;
  at_ = 0;
  n_spans_ = spans.size();
  if (states_.size() < n_spans_) states_.resize(n_spans_);
  for (size_t i = 0; i < n_spans_; ++i) {
    State& state = states_[i];
    WINNOW_DCHECK(spans[i].n_rows > 0);
    state.span = spans[i];
    state.n_done = 0;
    state.skipped = false;
    state.taps.Start(spans[i].sequence->taps, spans[i].n_rows);
    state.row_collector.Start(spans[i].sequence->rows, spans[i].n_rows);
    state.first_query = std::min(spans[i].first_output, state.taps.first_query());
    if (state.row_collector.wants_outputs()) {
      state.first_query = std::min(state.first_query, state.row_collector.first_row());
    }
  }
}

Result<void> LayerPass::Run(const Rows& rows, Decisions decisions) {
  undecided_.clear();
  Cut(rows.q.rows);
  for (const Piece& piece : pieces_) {
    ReportProjections(rows, piece,
                      /*rotated=*/rows.q_and_k.empty() && rotated(states_[piece.span]));
    CollectBefore(rows, piece);
  }
  if (!rows.q_and_k.empty()) Rotate(rows);
  for (const Piece& piece : pieces_) CollectQueries(rows, piece);
  // After the collectors, which expect untransformed queries.
  Transform(rows);
  for (const Piece& piece : pieces_) {
    if (piece.n == 1 || skipped(piece)) continue;
    WINNOW_TRY(IsolateFailure(piece, AttendPiece(rows, piece)));
    if (!skipped(piece)) WINNOW_TRY(IsolateFailure(piece, Finish(piece)));
  }
  WINNOW_TRY(AttendSingles(rows));
  for (const Piece& piece : pieces_) {
    if (piece.n > 1 || skipped(piece)) continue;
    const bool waits =
        decisions == Decisions::kLater && states_[piece.span].span.sequence->decides_on_one_thread;
    if (waits && is_last(piece)) {
      undecided_.push_back(piece);
    } else {
      WINNOW_TRY(IsolateFailure(piece, Finish(piece)));
    }
  }
  for (const Piece& piece : pieces_) states_[piece.span].n_done += piece.n;
  return {};
}

Result<void> LayerPass::Decide() {
  for (const Piece& piece : undecided_) {
    if (!skipped(piece)) WINNOW_TRY(IsolateFailure(piece, NotifyLayerDone(states_[piece.span])));
  }
  undecided_.clear();
  return {};
}

Result<void> LayerPass::IsolateFailure(const Piece& piece, const Result<void>& outcome) {
  if (outcome) return {};
  State& state = states_[piece.span];
  if (state.span.sequence->failure == nullptr) return outcome.error();
  *state.span.sequence->failure = outcome.error();
  state.skipped = true;
  return {};
}

// Divides the next n rows into pieces by sequence.
void LayerPass::Cut(int64_t n_rows) {
  pieces_.clear();
  for (int64_t row = 0; row < n_rows;) {
    WINNOW_CHECK(at_ < n_spans_);
    const State& state = states_[at_];
    const int64_t n_left = state.span.n_rows - state.n_done;
    const int64_t n = std::min(n_rows - row, n_left);
    pieces_.push_back({.span = at_, .first = row, .n = n});
    if (n == n_left) ++at_;
    row += n;
  }
}

void LayerPass::ReportProjections(const Rows& rows, const Piece& piece, bool rotated) const {
  const auto& on_projections = states_[piece.span].span.sequence->on_projections;
  if (!on_projections || skipped(piece)) return;
  on_projections({layer_, Part(rows.positions, piece.first, piece.n), rotated,
                  rows.q.Rows(piece.first, piece.n), rows.k.Rows(piece.first, piece.n),
                  rows.v.Rows(piece.first, piece.n)});
}

void LayerPass::CollectBefore(const Rows& rows, const Piece& piece) {
  State& state = states_[piece.span];
  if (skipped(piece) || !state.row_collector.any()) return;
  const kernels::Matrix hidden =
      rows.hidden.empty() ? rows.hidden : rows.hidden.Rows(piece.first, piece.n);
  state.row_collector.AddBefore(backend_, state.n_done, rows.q.Rows(piece.first, piece.n), hidden,
                                Part(rows.positions, piece.first, piece.n));
}

void LayerPass::CollectQueries(const Rows& rows, const Piece& piece) {
  if (skipped(piece)) return;
  State& state = states_[piece.span];
  state.row_collector.AddQueries(backend_, state.n_done, rows.q.Rows(piece.first, piece.n));
}

// Rotates neighbouring pieces whose keys are stored after RoPE in one call, queries and keys
// together: they lie side by side and have heads of the same size. If keys are stored before RoPE,
// attention rotates them.
void LayerPass::Rotate(const Rows& rows) {
  const size_t n = pieces_.size();
  for (size_t first = 0, end = 0; first < n; first = end + 1) {
    for (end = first; end < n && rotated(states_[pieces_[end].span]);) ++end;
    if (end == first) continue;
    const int64_t row = pieces_[first].first;
    const int64_t n_rows = pieces_[end - 1].first + pieces_[end - 1].n - row;
    backend_.Rope(rows.q_and_k.Rows(row, n_rows), shape_.key_dim, Part(rows.positions, row, n_rows),
                  *rope_);
    for (size_t i = first; i < end; ++i) ReportProjections(rows, pieces_[i], /*rotated=*/true);
  }
}

// Transforms queries as Append transforms keys.
void LayerPass::Transform(const Rows& rows) {
  for (const Piece& piece : pieces_) {
    if (skipped(piece)) continue;
    const cache::Cache& cache = *states_[piece.span].span.sequence->cache;
    if (!cache.keys_transformed(layer_)) continue;
    backend_.Hadamard(rows.q.Rows(piece.first, piece.n), shape_.key_dim);
  }
}

Result<void> LayerPass::AppendRows(const Rows& rows, const Piece& piece, int64_t first, int64_t n) {
  return states_[piece.span].span.sequence->cache->Append(
      layer_, rows.k.Rows(first, n), rows.v.Rows(first, n), Part(rows.positions, first, n));
}

Result<void> LayerPass::AttendPiece(const Rows& rows, const Piece& piece) {
  const cache::Cache& cache = *states_[piece.span].span.sequence->cache;
  const int64_t end = piece.first + piece.n;
  for (int64_t first = piece.first; first < end;) {
    const int64_t n = cache.RowsTogether(layer_, Part(rows.positions, first, end - first));
    WINNOW_TRY(AppendRows(rows, piece, first, n));
    AttendRows(rows, piece, first, n);
    first += n;
  }
  return {};
}

void LayerPass::AttendRows(const Rows& rows, const Piece& piece, int64_t first, int64_t n) {
  State& state = states_[piece.span];
  const int64_t end = first + n;
  // Converts row numbers of the sequence to those of the block.
  const int64_t offset = piece.first - state.n_done;
  const int64_t first_query = std::max(first, state.first_query + offset);
  const int64_t first_output = std::max(first, state.span.first_output + offset);
  if (first_query >= end) return;
  const TapSpec spec = state.taps.SpanTaps(first_query - offset, end - offset);
  const bool shown = state.row_collector.wants_outputs();
  if (spec.any() || (shown && first_query < first_output)) {
    const Attention attention = Make(rows, state, first_query, end, spec);
    attend_({&attention, 1});
    if (spec.any()) state.taps.Add();
    if (shown) {
      state.row_collector.AddOutputs(backend_, first_query - offset,
                                     rows.out.Rows(first_query, end - first_query));
    }
    // If outputs are needed of fewer rows than taps, compute those rows again as without taps: a
    // method that evicts nothing changes no bit.
    if (first_output == first_query) return;
  }
  if (first_output >= end) return;
  const Attention attention = Make(rows, state, first_output, end, {});
  attend_({&attention, 1});
  if (shown && !spec.any() && first_query == first_output) {
    state.row_collector.AddOutputs(backend_, first_query - offset,
                                   rows.out.Rows(first_query, end - first_query));
  }
}

Result<void> LayerPass::AttendSingles(const Rows& rows) {
  attentions_.clear();
  attended_.clear();
  for (size_t i = 0; i < pieces_.size(); ++i) {
    const Piece& piece = pieces_[i];
    if (piece.n > 1 || skipped(piece)) continue;
    WINNOW_TRY(IsolateFailure(piece, AppendRows(rows, piece, piece.first, 1)));
    if (skipped(piece)) continue;
    State& state = states_[piece.span];
    const TapSpec spec = state.taps.SpanTaps(state.n_done, state.n_done + 1);
    const bool is_read = state.n_done >= state.span.first_output;
    if (!is_read && !spec.any() && !state.row_collector.wants_outputs()) continue;
    Attention attention = Make(rows, state, piece.first, piece.first + 1, spec);
    const Sequence& sequence = *state.span.sequence;
    if (!spec.any() && state.span.n_rows == 1 && layer_ >= sequence.policy.dense_layers) {
      attention.top_p = sequence.policy.top_p;
      attention.n_attended = &state.n_attended;
    }
    attentions_.push_back(attention);
    attended_.push_back(i);
  }
  if (attentions_.empty()) return {};
  attend_(attentions_);
  for (size_t i = 0; i < attentions_.size(); ++i) {
    State& state = states_[pieces_[attended_[i]].span];
    CollectResult(state, attentions_[i]);
    state.row_collector.AddOutputs(backend_, state.n_done, attentions_[i].out);
  }
  return {};
}

Attention LayerPass::Make(const Rows& rows, State& state, int64_t first, int64_t end,
                          const TapSpec& spec) {
  const Queries queries = {.q = rows.q.Rows(first, end - first),
                           .out = rows.out.Rows(first, end - first),
                           .n_heads = shape_.n_heads,
                           .scale = shape_.scale,
                           .rope = rope_};
  return MakeAttention(*state.span.sequence->cache, layer_, queries, spec, &state.taps.block());
}

void LayerPass::CollectResult(State& state, const Attention& attention) const {
  if (attention.taps.any()) state.taps.Add();
  int64_t* n_attended = state.span.sequence->n_attended;
  if (attention.top_p < 1 && n_attended != nullptr) *n_attended += state.n_attended;
}

bool LayerPass::is_last(const Piece& piece) const {
  const State& state = states_[piece.span];
  return state.n_done + piece.n == state.span.n_rows;
}

Result<void> LayerPass::Finish(const Piece& piece) {
  return is_last(piece) ? NotifyLayerDone(states_[piece.span]) : Result<void>();
}

Result<void> LayerPass::NotifyLayerDone(State& state) {
  const Sequence& sequence = *state.span.sequence;
  if (!sequence.after_layer) return {};
  return sequence.after_layer({.layer = layer_,
                               .taps = state.taps.all(),
                               .rope = *rope_,
                               .rows = &state.row_collector.all(),
                               .scale = shape_.scale});
}

}  // namespace winnow::attention
