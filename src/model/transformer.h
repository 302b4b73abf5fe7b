#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "attention/attend.h"
#include "attention/tap_collector.h"
#include "model/architecture.h"
#include "model/model.h"
#include "model/rope.h"
#include "model/tensor_reader.h"

namespace winnow::model {

// What loading a file gives: the layers and what surrounds them.
struct TransformerParts {
  Hyperparameters hyperparameters;
  NormKind norm = NormKind::kRms;
  const kernels::Weight* embedding = nullptr;  // [vocabulary, embedding]
  std::vector<Layer> layers;
  Norm output_norm;
  const kernels::Weight* output = nullptr;  // the same as `embedding` where the file ties them
  WeightStore store;                        // owns what the parts point to
  int64_t n_parameters = 0;
  int64_t context = 0;
};

// Rows whose logits are computed at a time: enough to read the output matrix seldom, and 40 MB for
// the largest vocabularies.
inline constexpr int64_t kLogitRows = 64;

// Float matrix whose memory is kept from call to call and grows when more rows are asked for.
class ScratchMatrix {
 public:
  // Makes room for `rows` rows of `cols` columns. Error: memory refused.
  Result<void> Reserve(kernels::Backend& backend, int64_t rows, int64_t cols);
  void Free();
  int64_t rows() const { return matrix_.rows; }
  kernels::Matrix Rows(int64_t n) const { return matrix_.Rows(0, n); }

 private:
  std::unique_ptr<kernels::Storage> storage_;
  kernels::Matrix matrix_;
};

// Runs the layers of any architecture. The whole call goes through layer 0, then layer 1, ...;
// inside a layer its tokens go through in row blocks, so that only the hidden states and the cache
// grow with the call.
class Transformer final : public Model {
 public:
  Transformer(TransformerParts parts, kernels::Backend& backend);

  const Hyperparameters& hyperparameters() const override { return parts_.hyperparameters; }
  cache::CacheShape cache_shape() const override;
  int64_t n_parameters() const override { return parts_.n_parameters; }
  int64_t context() const override { return parts_.context; }
  const kernels::RopeTable& rope() const override { return rope_.table(); }
  Result<ForwardOutcome> Forward(const ForwardRequest& request) override;
  Result<void> ForwardBatch(const BatchRequest& request) override;
  int64_t buffer_bytes(const BufferUse& use) const override;

 private:
  // Some neighbouring tokens of the call, as far as one layer is concerned. Rows count from the
  // block's first.
  struct Block {
    kernels::Matrix x;  // hidden states [n_rows, embedding], in and out
    std::span<const cache::Position> positions;
    int64_t first_row = 0;     // of the block in the call
    int64_t first_query = 0;   // rows before it need no attention: nobody reads their result
    int64_t first_output = 0;  // rows before it need only keys and values
    bool is_last = true;       // of the call
  };

  // What a layer projects its rows to, side by side.
  struct Projected {
    kernels::Matrix q_and_k, q, k, v;
  };
  // The buffers a call needs.
  struct BufferShape {
    int64_t n_tokens = 0;  // of the call
    int64_t n_rows = 0;    // computed at a time
    int64_t n_logits = 0;  // rows of logits computed at a time
  };

  Result<void> Check(const ForwardRequest& request) const;
  Result<void> CheckToken(int32_t token, size_t number) const;
  Result<void> Reserve(const BufferShape& shape);
  int64_t InnerColumns() const;
  Result<bool> RunLayers(const ForwardRequest& request, kernels::Matrix& hidden);
  // The farthest position that a query or key of n tokens from `first` on is rotated to. Error: it
  // is beyond the context.
  Result<int64_t> LastRotation(const cache::Cache& cache, int64_t first, int64_t n) const;
  int64_t FirstOutput(const ForwardRequest& request, int64_t n_rows) const;
  Result<void> RunBlock(int layer, const Block& block, const ForwardRequest& request);
  Projected ProjectedRows(int64_t n_rows) const;
  // Before attention: from the hidden states to ProjectedRows.
  void Project(int layer, const kernels::Matrix& x);
  // Error: cache full.
  Result<void> Attend(int layer, const Block& block, const ForwardRequest& request);
  // The rows [first, first + n) of the block, which attention can take together.
  Result<void> AttendRows(int layer, const Block& block, int64_t first, int64_t n,
                          const ForwardRequest& request);
  attention::Queries QueriesOf(int64_t n_rows, int64_t first, int64_t n) const;
  // After attention: the rows of x from first_output on become the next layer's.
  void Complete(int layer, const kernels::Matrix& x, int64_t first_output);
  // Error: a cache is full.
  Result<void> AttendBatch(int layer, const BatchRequest& request);
  // Moves the rows to the front and returns them; positions_ follow.
  kernels::Matrix KeepRows(const kernels::Matrix& hidden, std::span<const int32_t> rows);
  void FeedForward(const FeedForwardPart& part, const kernels::Matrix& in,
                   const kernels::Matrix& x);
  void Normalize(const Norm& norm, const kernels::Matrix& x, const kernels::Matrix& out);
  // out (+)= the pieces' products with x, side by side.
  void Multiply(const Product& product, const kernels::Matrix& x, const kernels::Matrix& out,
                bool accumulate = false);
  Result<ForwardOutcome> Compute(const ForwardRequest& request);
  Result<void> ComputeBatch(const BatchRequest& request);
  void GiveLogits(const ForwardRequest& request, const kernels::Matrix& hidden);
  // Logits of some rows of hidden states, in the memory of logits_.
  kernels::Matrix Logits(const kernels::Matrix& hidden);

  TransformerParts parts_;
  kernels::Backend& backend_;
  RopePositions rope_;

  ScratchMatrix hidden_;          // [tokens of the call, embedding]
  ScratchMatrix normed_;          // [row block, embedding]
  ScratchMatrix qkv_;             // [row block, q | k | v]
  ScratchMatrix attended_;        // [row block, heads * value_dim]
  ScratchMatrix inner_;           // [row block, gate | up]
  ScratchMatrix logits_;          // [kLogitRows, vocabulary]
  attention::TapCollector taps_;  // of the layer at work
  // Of a batch, per sequence.
  std::vector<kernels::Taps> batch_taps_;
  std::vector<int64_t> batch_attended_;
  std::vector<kernels::Attention> attentions_;
  std::vector<int32_t> batch_tokens_;
  std::vector<cache::Position> positions_;
  std::vector<int32_t> row_numbers_;
  std::vector<float> host_logits_;
  bool at_work_ = false;
};

}  // namespace winnow::model
