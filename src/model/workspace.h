#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "base/result.h"
#include "kernels/ops.h"
#include "model/model.h"

namespace winnow::model {

// Rows whose logits are computed at a time: enough to amortise reading the output matrix, and 40 MB
// for the largest vocabularies.
inline constexpr int64_t kLogitRows = 64;

// A float matrix that keeps its memory between steps and grows when more rows are requested.
class ScratchMatrix {
 public:
  // Makes room for `rows` rows of `cols` columns; growing loses the content. Error: memory refused.
  Result<void> Reserve(kernels::Backend& backend, int64_t rows, int64_t cols);
  void Free();
  int64_t rows() const { return matrix_.rows; }
  kernels::Matrix Rows(int64_t first, int64_t n) const { return matrix_.Rows(first, n); }
  kernels::Matrix Rows(int64_t n) const { return Rows(0, n); }

 private:
  std::unique_ptr<kernels::Storage> storage_;
  kernels::Matrix matrix_;
};

// Sizes of steps, which determine the size of their buffers.
struct BufferUse {
  int64_t n_tokens = 1;     // of the longest step
  int64_t row_block = 512;  // of that step
  int64_t n_sequences = 1;  // of the largest batch of single tokens
  int64_t n_positions = 1;  // positions that keys and queries are rotated to
  bool operator==(const BufferUse&) const = default;
};
// Bytes that such steps take besides weights and caches, including the model's RoPE tables. Does
// not count the scratch memory of the backend.
int64_t BufferBytes(const Model& model, const BufferUse& use);

// The buffers of one step.
class Workspace {
 public:
  struct Size {
    int64_t n_tokens = 0;  // of the step
    int64_t n_rows = 0;    // computed at a time
    int64_t n_logits = 0;  // rows of logits computed at a time
    bool host_logits = false;
  };
  // Error: memory refused.
  Result<void> Reserve(const Model& model, const Size& size);

  // Projections of a layer's rows, side by side.
  struct Projected {
    kernels::Matrix all, q_and_k, q, k, v;
  };
  Projected ProjectedRows(const LayerSpec& layer, int64_t n_rows) const;
  // [n_rows, heads * value_dim] of the layer.
  kernels::Matrix AttendedRows(const LayerSpec& layer, int64_t first, int64_t n_rows) const;
  // Rows of logits that fit at a time.
  int64_t n_logits() const;

  ScratchMatrix hidden;  // [tokens of the step, embedding]
  ScratchMatrix normed;  // [row block, embedding]
  // As wide as the widest layer requires:
  ScratchMatrix qkv;       // [row block, q | k | v]
  ScratchMatrix attended;  // [row block, heads * value_dim]
  ScratchMatrix inner;     // [row block, gate | up]
  ScratchMatrix logits;    // [kLogitRows, vocabulary]
  std::vector<float> host_logits;
};

}  // namespace winnow::model
