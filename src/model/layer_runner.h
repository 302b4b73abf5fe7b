#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "attention/layer_pass.h"
#include "kernels/ops.h"
#include "model/parts.h"
#include "model/workspace.h"

namespace winnow::model {

// Attention shape of every layer, [layer].
std::vector<attention::LayerPass::Shape> PassShapes(const Hyperparameters& h);

// The products of a layer before and after attention, for any architecture. Works on row blocks of
// a workspace: row i of `x` has its projections, attention and norm in row i of the other buffers.
class LayerRunner {
 public:
  // All arguments must outlive the runner.
  LayerRunner(const ModelParts& parts, kernels::Backend& backend, const Workspace& work)
      : parts_(parts), backend_(backend), work_(work) {}

  // Before attention: computes queries, keys (before RoPE) and values of hidden states x [n,
  // embedding] into rows [0, n) of `work.qkv`. Leaves the norm of x in `work.normed`.
  void Project(int layer, const kernels::Matrix& x) const;
  // After attention: x becomes the next layer's input. Reads the rows [first, first + x.rows) of
  // `work.attended` and `work.normed`. Runs `overlapped` exactly once, during a product
  // (Backend::MatMul).
  void Complete(int layer, const kernels::Matrix& x, int64_t first,
                const std::function<void()>& overlapped = {}) const;
  // Computes logits [n, vocabulary] of hidden states x after the last layer, in `work.logits`.
  kernels::Matrix Logits(const kernels::Matrix& x) const;

 private:
  void FeedForward(const FeedForwardPart& part, const kernels::Matrix& in, const kernels::Matrix& x,
                   const std::function<void()>& overlapped) const;
  void Normalize(const Norm& norm, const kernels::Matrix& x, const kernels::Matrix& out) const;
  // out (+)= the products of x with the pieces, side by side.
  void Multiply(const Product& product, const kernels::Matrix& x, const kernels::Matrix& out,
                bool accumulate = false, const std::function<void()>& overlapped = {}) const;

  const ModelParts& parts_;
  kernels::Backend& backend_;
  const Workspace& work_;
};

}  // namespace winnow::model
