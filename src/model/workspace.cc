#include "model/workspace.h"

#include <algorithm>

#include "model/parts.h"
#include "model/rope.h"

namespace winnow::model {
namespace {

int64_t QueryColumns(const LayerSpec& layer) {
  return static_cast<int64_t>(layer.n_heads) * layer.key_dim;
}
int64_t KeyColumns(const LayerSpec& layer) {
  return static_cast<int64_t>(layer.n_kv_heads) * layer.key_dim;
}
int64_t ValueColumns(const LayerSpec& layer) {
  return static_cast<int64_t>(layer.n_kv_heads) * layer.value_dim;
}
int64_t ProjectedColumns(const LayerSpec& layer) {
  return QueryColumns(layer) + KeyColumns(layer) + ValueColumns(layer);
}
int64_t AttendedColumns(const LayerSpec& layer) {
  return static_cast<int64_t>(layer.n_heads) * layer.value_dim;
}
// Columns of the widest layer.
int64_t Widest(const Hyperparameters& h, int64_t (*columns)(const LayerSpec& layer)) {
  int64_t widest = 0;
  for (const LayerSpec& layer : h.layers) widest = std::max(widest, columns(layer));
  return widest;
}
int64_t InnerColumns(const ModelParts& parts) {
  int64_t widest = 0;
  for (const Layer& layer : parts.layers) {
    const FeedForwardPart& part = layer.feed_forward;
    widest = std::max(widest, part.gated ? 2 * part.width : part.width);
  }
  return widest;
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

int64_t BufferBytes(const Model& model, const BufferUse& use) {
  const Hyperparameters& h = model.hyperparameters();
  const int64_t n_tokens = std::max(use.n_tokens, use.n_sequences);
  const int64_t n_rows = std::max(std::min(use.n_tokens, use.row_block), use.n_sequences);
  const int64_t n_logits = std::min(use.n_sequences, kLogitRows);
  const int64_t floats = n_tokens * h.embedding +
                         n_rows * (h.embedding + Widest(h, ProjectedColumns) +
                                   Widest(h, AttendedColumns) + InnerColumns(model.parts())) +
                         (n_logits + 1) * h.vocabulary;  // + 1: a row on the host
  int64_t bytes = floats * static_cast<int64_t>(sizeof(float));
  for (size_t i = 0; i < model.n_ropes(); ++i) bytes += model.rope(i).bytes(use.n_positions);
  return bytes;
}

Result<void> Workspace::Reserve(const Model& model, const Size& size) {
  const Hyperparameters& h = model.hyperparameters();
  kernels::Backend& backend = model.backend();
  WINNOW_TRY(hidden.Reserve(backend, size.n_tokens, h.embedding));
  WINNOW_TRY(normed.Reserve(backend, size.n_rows, h.embedding));
  WINNOW_TRY(qkv.Reserve(backend, size.n_rows, Widest(h, ProjectedColumns)));
  WINNOW_TRY(attended.Reserve(backend, size.n_rows, Widest(h, AttendedColumns)));
  WINNOW_TRY(inner.Reserve(backend, size.n_rows, InnerColumns(model.parts())));
  if (size.n_logits > 0) WINNOW_TRY(logits.Reserve(backend, size.n_logits, h.vocabulary));
  if (size.host_logits) host_logits.resize(static_cast<size_t>(n_logits() * h.vocabulary));
  return {};
}

Workspace::Projected Workspace::ProjectedRows(const LayerSpec& layer, int64_t n_rows) const {
  const kernels::Matrix all = qkv.Rows(n_rows).Cols(0, ProjectedColumns(layer));
  const int64_t n_q_and_k = QueryColumns(layer) + KeyColumns(layer);
  return {.all = all,
          .q_and_k = all.Cols(0, n_q_and_k),
          .q = all.Cols(0, QueryColumns(layer)),
          .k = all.Cols(QueryColumns(layer), KeyColumns(layer)),
          .v = all.Cols(n_q_and_k, ValueColumns(layer))};
}

kernels::Matrix Workspace::AttendedRows(const LayerSpec& layer, int64_t first,
                                        int64_t n_rows) const {
  return attended.Rows(first, n_rows).Cols(0, AttendedColumns(layer));
}

int64_t Workspace::n_logits() const { return std::min(normed.rows(), logits.rows()); }

}  // namespace winnow::model
