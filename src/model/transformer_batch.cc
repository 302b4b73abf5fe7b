#include <algorithm>

#include "base/check.h"
#include "model/transformer.h"

// Several sequences in one pass. Only attention is theirs; everything else sees a matrix of rows.
namespace winnow::model {

using kernels::Matrix;

Result<void> Transformer::ForwardBatch(const BatchRequest& request) {
  WINNOW_CHECK(!at_work_);
  at_work_ = true;
  Result<void> done = ComputeBatch(request);
  at_work_ = false;
  return done;
}

Result<void> Transformer::ComputeBatch(const BatchRequest& request) {
  const auto n = static_cast<int64_t>(request.sequences.size());
  if (n == 0) return {};
  int64_t last_rotation = 0;
  for (size_t i = 0; i < request.sequences.size(); ++i) {
    const BatchRequest::Sequence& sequence = request.sequences[i];
    WINNOW_CHECK(sequence.cache != nullptr && sequence.cache->config().shape == cache_shape());
    WINNOW_CHECK(sequence.position >= 0);
    WINNOW_CHECK(static_cast<int64_t>(sequence.logits.size()) == parts_.hyperparameters.vocabulary);
    WINNOW_TRY(CheckToken(sequence.token, i));
    WINNOW_ASSIGN(const int64_t rotation, LastRotation(*sequence.cache, sequence.position, 1));
    last_rotation = std::max(last_rotation, rotation);
  }
  WINNOW_TRY(Reserve({.n_tokens = n, .n_rows = n, .n_logits = std::min(n, kLogitRows)}));
  WINNOW_TRY(rope_.Cover(last_rotation + 1));
  if (batch_taps_.size() < request.sequences.size()) batch_taps_.resize(request.sequences.size());
  batch_attended_.resize(request.sequences.size());
  batch_tokens_.resize(request.sequences.size());
  for (size_t i = 0; i < request.sequences.size(); ++i) {
    batch_tokens_[i] = request.sequences[i].token;
    positions_[i] = request.sequences[i].position;
  }

  const kernels::Taps no_taps;
  const Matrix hidden = hidden_.Rows(n);
  backend_.GetRows(*parts_.embedding, batch_tokens_, /*scale=*/1.0f, hidden);
  for (int layer = 0; layer < parts_.hyperparameters.n_layers; ++layer) {
    Project(layer, hidden);
    WINNOW_TRY(AttendBatch(layer, request));
    if (request.after_layer) {
      for (size_t i = 0; i < request.sequences.size(); ++i) {
        const bool tapped = request.sequences[i].taps.any();
        WINNOW_TRY(request.after_layer(layer, i, tapped ? batch_taps_[i] : no_taps));
      }
    }
    Complete(layer, hidden, /*first_output=*/0);
  }
  for (int64_t first = 0; first < n; first += kLogitRows) {
    const Matrix logits = Logits(hidden.Rows(first, std::min(kLogitRows, n - first)));
    for (int64_t row = 0; row < logits.rows; ++row) {
      backend_.Read(logits.Rows(row, 1),
                    request.sequences[static_cast<size_t>(first + row)].logits);
    }
  }
  return {};
}

Result<void> Transformer::AttendBatch(int layer, const BatchRequest& request) {
  const std::span sequences = request.sequences;
  const auto n = static_cast<int64_t>(sequences.size());
  const Projected rows = ProjectedRows(n);
  const auto position = [&](int64_t row) {
    return std::span(positions_).subspan(static_cast<size_t>(row), 1);
  };
  // Neighbours whose keys are stored after RoPE are turned together.
  for (int64_t first = 0, end = 0; first < n; first = end + 1) {
    for (end = first; end < n && sequences[static_cast<size_t>(end)].cache->keys_rotated(layer);) {
      ++end;
    }
    if (end == first) continue;
    backend_.Rope(
        rows.q_and_k.Rows(first, end - first), parts_.hyperparameters.key_dim,
        std::span(positions_).subspan(static_cast<size_t>(first), static_cast<size_t>(end - first)),
        rope_.table());
  }
  attentions_.clear();
  for (int64_t row = 0; row < n; ++row) {
    const auto i = static_cast<size_t>(row);
    const BatchRequest::Sequence& sequence = sequences[i];
    WINNOW_TRY(
        sequence.cache->Append(layer, rows.k.Rows(row, 1), rows.v.Rows(row, 1), position(row)));
    kernels::TapSpec taps = sequence.taps;
    taps.last_rows = std::min(taps.last_rows, 1);
    kernels::Attention attention =
        attention::Over(*sequence.cache, layer, QueriesOf(n, row, 1), taps, &batch_taps_[i]);
    if (!taps.any() && sequence.top_p < 1 && layer >= sequence.top_p_from) {
      attention.top_p = sequence.top_p;
      attention.n_attended = &batch_attended_[i];
    }
    attentions_.push_back(attention);
  }
  backend_.AttendAll(attentions_);
  for (size_t i = 0; i < sequences.size(); ++i) {
    if (attentions_[i].top_p < 1 && sequences[i].n_attended != nullptr) {
      *sequences[i].n_attended += batch_attended_[i];
    }
  }
  return {};
}

}  // namespace winnow::model
