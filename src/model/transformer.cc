#include "model/transformer.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>

#include "attention/attend.h"
#include "base/check.h"

namespace winnow::model {
namespace {

using kernels::Matrix;

int64_t QueryColumns(const Hyperparameters& h) {
  return static_cast<int64_t>(h.n_heads) * h.key_dim;
}
int64_t KeyColumns(const Hyperparameters& h) {
  return static_cast<int64_t>(h.n_kv_heads) * h.key_dim;
}
int64_t ValueColumns(const Hyperparameters& h) {
  return static_cast<int64_t>(h.n_kv_heads) * h.value_dim;
}
int64_t AttendedColumns(const Hyperparameters& h) {
  return static_cast<int64_t>(h.n_heads) * h.value_dim;
}

}  // namespace

Result<void> ScratchMatrix::Reserve(kernels::Backend& backend, int64_t rows, int64_t cols) {
  if (rows <= matrix_.rows && cols == matrix_.cols) return {};
  Free();
  WINNOW_ASSIGN(storage_, backend.Allocate(rows * cols * static_cast<int64_t>(sizeof(float))));
  matrix_ = {.storage = storage_.get(), .offset = 0, .rows = rows, .cols = cols, .stride = cols};
  return {};
}

void ScratchMatrix::Free() {
  storage_.reset();
  matrix_ = {};
}

Transformer::Transformer(TransformerParts parts, kernels::Backend& backend)
    : parts_(std::move(parts)),
      backend_(backend),
      // With capped distances a query stands as far as the cap, which may be the trained context.
      rope_(backend, parts_.hyperparameters.rope, parts_.context,
            std::max(parts_.context, parts_.hyperparameters.trained_context) + 1) {}

cache::CacheShape Transformer::cache_shape() const {
  const Hyperparameters& h = parts_.hyperparameters;
  return {.n_layers = h.n_layers,
          .n_kv_heads = h.n_kv_heads,
          .key_dim = h.key_dim,
          .value_dim = h.value_dim};
}

Result<void> Transformer::Check(const ForwardRequest& request) const {
  WINNOW_CHECK(request.cache != nullptr && request.cache->config().shape == cache_shape());
  WINNOW_CHECK(request.row_block > 0 && request.first_position >= 0 && request.logits_from >= 0);
  WINNOW_TRY(LastRotation(*request.cache, request.first_position,
                          static_cast<int64_t>(request.tokens.size())));
  for (size_t i = 0; i < request.tokens.size(); ++i) WINNOW_TRY(CheckToken(request.tokens[i], i));
  return {};
}

Result<void> Transformer::CheckToken(int32_t token, size_t number) const {
  const int64_t vocabulary = parts_.hyperparameters.vocabulary;
  if (token >= 0 && token < vocabulary) return {};
  return Error{"model: token " + std::to_string(token) + " (number " + std::to_string(number) +
               ") is outside the vocabulary of " + std::to_string(vocabulary)};
}

Result<int64_t> Transformer::LastRotation(const cache::Cache& cache, int64_t first,
                                          int64_t n) const {
  // Layers go through their first eviction one after another, but in the same call.
  const cache::PositionMode mode =
      cache.keys_rotated(0) ? cache::PositionMode::kOriginal : cache.config().positions;
  int64_t last = first + n - 1;
  int64_t limit = parts_.context;
  if (mode == cache::PositionMode::kCapped) {
    last = std::min(last, cache.config().distance_cap);
    limit = rope_.most();
  } else if (mode == cache::PositionMode::kReassigned) {
    int64_t most = 0;
    for (int layer = 0; layer < cache.config().shape.n_layers; ++layer) {
      for (int head = 0; head < cache.config().shape.n_kv_heads; ++head) {
        most = std::max(most, cache.n_slots(layer, head));
      }
    }
    last = most + n - 1;
  }
  if (last < limit) return last;
  return Error{"model: position " + std::to_string(last) + " is beyond the context of " +
               std::to_string(parts_.context) + " tokens"};
}

int64_t Transformer::InnerColumns() const {
  const int64_t width = parts_.hyperparameters.feed_forward;
  const auto gated = [](const Layer& layer) { return layer.feed_forward.gated; };
  return std::any_of(parts_.layers.begin(), parts_.layers.end(), gated) ? 2 * width : width;
}

Result<void> Transformer::Reserve(const BufferShape& shape) {
  const Hyperparameters& h = parts_.hyperparameters;
  WINNOW_TRY(hidden_.Reserve(backend_, shape.n_tokens, h.embedding));
  WINNOW_TRY(normed_.Reserve(backend_, shape.n_rows, h.embedding));
  WINNOW_TRY(
      qkv_.Reserve(backend_, shape.n_rows, QueryColumns(h) + KeyColumns(h) + ValueColumns(h)));
  WINNOW_TRY(attended_.Reserve(backend_, shape.n_rows, AttendedColumns(h)));
  WINNOW_TRY(inner_.Reserve(backend_, shape.n_rows, InnerColumns()));
  if (shape.n_logits > 0) WINNOW_TRY(logits_.Reserve(backend_, shape.n_logits, h.vocabulary));
  positions_.resize(static_cast<size_t>(shape.n_tokens));
  return {};
}

int64_t Transformer::buffer_bytes(const BufferUse& use) const {
  const Hyperparameters& h = parts_.hyperparameters;
  const int64_t n_tokens = std::max(use.n_tokens, use.n_sequences);
  const int64_t n_rows = std::max(std::min(use.n_tokens, use.row_block), use.n_sequences);
  const int64_t n_logits = std::min(use.n_sequences, kLogitRows);
  const int64_t floats = n_tokens * h.embedding +
                         n_rows * (h.embedding + QueryColumns(h) + KeyColumns(h) + ValueColumns(h) +
                                   AttendedColumns(h) + InnerColumns()) +
                         (n_logits + 1) * h.vocabulary;  // and a row on the host
  return floats * static_cast<int64_t>(sizeof(float)) + rope_.bytes(use.n_positions);
}

Result<ForwardOutcome> Transformer::Forward(const ForwardRequest& request) {
  WINNOW_CHECK(!at_work_);
  at_work_ = true;
  Result<ForwardOutcome> outcome = Compute(request);
  at_work_ = false;
  return outcome;
}

Result<ForwardOutcome> Transformer::Compute(const ForwardRequest& request) {
  WINNOW_TRY(Check(request));
  if (request.tokens.empty()) return ForwardOutcome{};
  const auto n = static_cast<int64_t>(request.tokens.size());
  const int64_t n_rows = std::min(n, request.row_block);
  const bool any_logits = request.on_logits && request.logits_from < n;
  WINNOW_TRY(Reserve(
      {.n_tokens = n,
       .n_rows = n_rows,
       .n_logits = any_logits ? std::min({n - request.logits_from, n_rows, kLogitRows}) : 0}));
  if (any_logits) {
    host_logits_.resize(static_cast<size_t>(logits_.rows() * parts_.hyperparameters.vocabulary));
  }
  WINNOW_ASSIGN(const int64_t last_rotation,
                LastRotation(*request.cache, request.first_position, n));
  WINNOW_TRY(rope_.Cover(last_rotation + 1));
  std::iota(positions_.begin(), positions_.end(), request.first_position);

  Matrix hidden = hidden_.Rows(n);
  backend_.GetRows(*parts_.embedding, request.tokens, /*scale=*/1.0f, hidden);
  WINNOW_ASSIGN(const bool finished, RunLayers(request, hidden));
  if (finished) GiveLogits(request, hidden);

  // The hidden states of a long prompt are not kept for the single tokens that follow.
  if (hidden_.rows() > request.row_block) hidden_.Free();
  return ForwardOutcome{.stopped = !finished};
}

// False: stopped by `progress`. `hidden` loses the rows that are not kept.
Result<bool> Transformer::RunLayers(const ForwardRequest& request, Matrix& hidden) {
  const int n_layers = parts_.hyperparameters.n_layers;
  for (int layer = 0; layer < n_layers; ++layer) {
    const int64_t n = hidden.rows;
    taps_.Start(request.taps, n);
    // The last layer's result is read only by the logits; its attention also by the taps.
    const bool is_last = layer + 1 == n_layers;
    const int64_t first_output = !is_last ? 0 : FirstOutput(request, n);
    const int64_t first_query = std::min(first_output, taps_.first_query());
    for (int64_t first = 0; first < n; first += request.row_block) {
      const int64_t n_rows = std::min(request.row_block, n - first);
      const Block block = {
          .x = hidden.Rows(first, n_rows),
          .positions = std::span(positions_)
                           .subspan(static_cast<size_t>(first), static_cast<size_t>(n_rows)),
          .first_row = first,
          .first_query = std::clamp<int64_t>(first_query - first, 0, n_rows),
          .first_output = std::clamp<int64_t>(first_output - first, 0, n_rows),
          .is_last = first + n_rows == n};
      WINNOW_TRY(RunBlock(layer, block, request));
      const double done =
          (layer + static_cast<double>(first + n_rows) / static_cast<double>(n)) / n_layers;
      if (request.progress && !request.progress(done)) return false;
    }
    if (!request.rows_kept) continue;
    const std::span<const int32_t> rows = request.rows_kept(layer);
    if (rows.empty() || static_cast<int64_t>(rows.size()) == n) continue;
    hidden = KeepRows(hidden, rows);
  }
  return true;
}

// Rows from here on are needed after the last layer; their number does not depend on what was
// dropped before.
int64_t Transformer::FirstOutput(const ForwardRequest& request, int64_t n_rows) const {
  if (!request.on_logits) return n_rows;
  const auto n = static_cast<int64_t>(request.tokens.size());
  return n_rows - std::max<int64_t>(0, n - request.logits_from);
}

Matrix Transformer::KeepRows(const Matrix& hidden, std::span<const int32_t> rows) {
  WINNOW_CHECK(rows.back() == hidden.rows - 1);
  row_numbers_.resize(rows.size());
  std::iota(row_numbers_.begin(), row_numbers_.end(), 0);
  constexpr auto kFloatBytes = static_cast<int64_t>(sizeof(float));
  backend_.MoveRows(*hidden.storage, hidden.offset * kFloatBytes, hidden.stride * kFloatBytes, rows,
                    row_numbers_);
  for (size_t i = 0; i < rows.size(); ++i) {
    positions_[i] = positions_[static_cast<size_t>(rows[i])];
  }
  return hidden.Rows(0, static_cast<int64_t>(rows.size()));
}

Result<void> Transformer::RunBlock(int layer, const Block& block, const ForwardRequest& request) {
  Project(layer, block.x);
  WINNOW_TRY(Attend(layer, block, request));
  // At once: what attention read is still in the machine's caches, behind the layer's other weights
  // it no longer is.
  if (block.is_last && request.after_layer) {
    WINNOW_TRY(request.after_layer(layer, taps_.all()));
  }
  Complete(layer, block.x, block.first_output);
  return {};
}

Transformer::Projected Transformer::ProjectedRows(int64_t n_rows) const {
  const Hyperparameters& h = parts_.hyperparameters;
  const Matrix qkv = qkv_.Rows(n_rows);
  Projected projected = {.q_and_k = qkv.Cols(0, QueryColumns(h) + KeyColumns(h)),
                         .q = qkv.Cols(0, QueryColumns(h)),
                         .k = qkv.Cols(QueryColumns(h), KeyColumns(h)),
                         .v = {}};
  projected.v = qkv.Cols(projected.q_and_k.cols, ValueColumns(h));
  return projected;
}

void Transformer::Project(int layer_index, const Matrix& x) {
  const Layer& layer = parts_.layers[static_cast<size_t>(layer_index)];
  const AttentionPart& part = layer.attention;
  const float epsilon = parts_.hyperparameters.norm_epsilon;
  Normalize(layer.attention_norm, x, normed_.Rows(x.rows));
  Multiply(part.qkv, normed_.Rows(x.rows), qkv_.Rows(x.rows));
  const Projected projected = ProjectedRows(x.rows);
  if (!part.q_norm.empty()) backend_.RmsNormHeads(projected.q, part.q_norm, epsilon);
  if (!part.k_norm.empty()) backend_.RmsNormHeads(projected.k, part.k_norm, epsilon);
}

void Transformer::Complete(int layer_index, const Matrix& rows, int64_t first_output) {
  const Layer& layer = parts_.layers[static_cast<size_t>(layer_index)];
  const int64_t n_outputs = rows.rows - first_output;
  if (n_outputs == 0) return;
  const Matrix x = rows.Rows(first_output, n_outputs);
  const Matrix normed = normed_.Rows(rows.rows).Rows(first_output, n_outputs);
  const Matrix attended = attended_.Rows(rows.rows).Rows(first_output, n_outputs);
  const bool parallel = layer.residual == Layer::Residual::kParallel;
  if (parallel && layer.feed_forward_norm) Normalize(layer.feed_forward_norm, x, normed);
  Multiply(layer.attention.output, attended, x, /*accumulate=*/true);
  if (!parallel) Normalize(layer.feed_forward_norm, x, normed);
  FeedForward(layer.feed_forward, normed, x);
}

attention::Queries Transformer::QueriesOf(int64_t n_rows, int64_t first, int64_t n) const {
  const Hyperparameters& h = parts_.hyperparameters;
  return {.q = ProjectedRows(n_rows).q.Rows(first, n),
          .out = attended_.Rows(n_rows).Rows(first, n),
          .n_heads = h.n_heads,
          .scale = h.attention_scale,
          .rope = &rope_.table()};
}

Result<void> Transformer::Attend(int layer_index, const Block& block,
                                 const ForwardRequest& request) {
  cache::Cache& cache = *request.cache;
  const int64_t n_rows = block.x.rows;
  const Projected rows = ProjectedRows(n_rows);
  const auto show = [&](bool rotated) {
    if (request.on_projections) {
      request.on_projections({layer_index, block.positions, rotated, rows.q, rows.k, rows.v});
    }
  };
  show(/*rotated=*/false);
  // Queries and keys lie side by side and have heads of the same size: one call turns both. Where
  // keys are stored before RoPE, attention turns them.
  if (cache.keys_rotated(layer_index)) {
    backend_.Rope(rows.q_and_k, parts_.hyperparameters.key_dim, block.positions, rope_.table());
    show(/*rotated=*/true);
  }
  for (int64_t first = 0; first < n_rows;) {
    const int64_t n =
        cache.RowsTogether(layer_index, block.positions.subspan(static_cast<size_t>(first)));
    WINNOW_TRY(AttendRows(layer_index, block, first, n, request));
    first += n;
  }
  return {};
}

Result<void> Transformer::AttendRows(int layer_index, const Block& block, int64_t first_row,
                                     int64_t n, const ForwardRequest& request) {
  cache::Cache& cache = *request.cache;
  const Projected rows = ProjectedRows(block.x.rows);
  const int64_t end = first_row + n;
  WINNOW_TRY(cache.Append(
      layer_index, rows.k.Rows(first_row, n), rows.v.Rows(first_row, n),
      block.positions.subspan(static_cast<size_t>(first_row), static_cast<size_t>(n))));

  const auto over = [&](int64_t first, const kernels::TapSpec& spec) {
    return attention::Over(cache, layer_index, QueriesOf(block.x.rows, first, end - first), spec,
                           &taps_.block());
  };
  const int64_t first_query = std::max(first_row, block.first_query);
  const int64_t first_output = std::max(first_row, block.first_output);
  if (first_query >= end) return {};
  const kernels::TapSpec spec = taps_.SpecOf(block.first_row + first_query, block.first_row + end);
  if (spec.any()) {
    backend_.Attend(over(first_query, spec));
    taps_.Add();
    // Where fewer rows are read than were tapped, they are computed as without taps: a method that
    // evicts nothing changes no bit.
    if (first_output == first_query) return {};
  }
  if (first_output >= end) return {};
  kernels::Attention attention = over(first_output, {});
  int64_t n_attended = 0;
  if (request.tokens.size() == 1 && layer_index >= request.top_p_from) {
    attention.top_p = request.top_p;
    attention.n_attended = &n_attended;
  }
  backend_.Attend(attention);
  if (attention.top_p < 1 && request.n_attended != nullptr) *request.n_attended += n_attended;
  return {};
}

void Transformer::FeedForward(const FeedForwardPart& part, const Matrix& in, const Matrix& x) {
  const int64_t width = parts_.hyperparameters.feed_forward;
  const Matrix inner = inner_.Rows(in.rows);
  const Matrix gate = inner.Cols(0, width);
  if (part.gated) {
    Multiply(part.input, in, inner.Cols(0, 2 * width));
    backend_.Activate(part.activation, gate, inner.Cols(width, width), gate);
  } else {
    Multiply(part.input, in, gate);
    backend_.Activate(part.activation, gate, {}, gate);
  }
  Multiply(part.output, gate, x, /*accumulate=*/true);
}

void Transformer::Normalize(const Norm& norm, const Matrix& x, const Matrix& out) {
  const float epsilon = parts_.hyperparameters.norm_epsilon;
  switch (parts_.norm) {
    case NormKind::kRms:
      return backend_.RmsNorm(x, norm.weight, epsilon, out);
    case NormKind::kLayer:
      return backend_.LayerNorm(x, norm.weight, norm.bias, epsilon, out);
  }
}

void Transformer::Multiply(const Product& product, const Matrix& x, const Matrix& out,
                           bool accumulate) {
  std::array<kernels::Linear, 3> jobs;
  int64_t column = 0;
  for (size_t i = 0; i < product.all().size(); ++i) {
    const Product::Piece& piece = product.pieces[i];
    jobs[i] = {.weight = piece.weight,
               .bias = piece.bias,
               .out = out.Cols(column, piece.weight->rows()),
               .accumulate = accumulate};
    column += piece.weight->rows();
  }
  WINNOW_DCHECK(column == out.cols);
  backend_.MatMul(x, std::span(jobs).first(product.all().size()));
}

Matrix Transformer::Logits(const Matrix& hidden) {
  const Matrix normed = normed_.Rows(hidden.rows);
  const Matrix logits = logits_.Rows(hidden.rows);
  Normalize(parts_.output_norm, hidden, normed);
  const kernels::Linear job = {.weight = parts_.output, .bias = {}, .out = logits};
  backend_.MatMul(normed, {&job, 1});
  return logits;
}

void Transformer::GiveLogits(const ForwardRequest& request, const Matrix& hidden) {
  if (!request.on_logits) return;
  const int64_t vocabulary = parts_.hyperparameters.vocabulary;
  const int64_t n_at_once = std::min(normed_.rows(), logits_.rows());
  const int64_t n_dropped = static_cast<int64_t>(request.tokens.size()) - hidden.rows;
  for (int64_t first = FirstOutput(request, hidden.rows); first < hidden.rows; first += n_at_once) {
    const int64_t n = std::min(n_at_once, hidden.rows - first);
    const std::span<float> host =
        std::span(host_logits_).first(static_cast<size_t>(n * vocabulary));
    backend_.Read(Logits(hidden.Rows(first, n)), host);
    request.on_logits(first + n_dropped, host);
  }
}

}  // namespace winnow::model
