#include "model/layer_runner.h"

#include <array>
#include <span>

#include "base/check.h"

namespace winnow::model {

using kernels::Matrix;

std::vector<attention::LayerPass::Shape> PassShapes(const Hyperparameters& h) {
  std::vector<attention::LayerPass::Shape> shapes;
  shapes.reserve(h.layers.size());
  for (const LayerSpec& layer : h.layers) {
    shapes.push_back(
        {.n_heads = layer.n_heads, .key_dim = layer.key_dim, .scale = layer.attention_scale});
  }
  return shapes;
}

void LayerRunner::Project(int layer_index, const Matrix& x) const {
  const Layer& layer = parts_.layers[static_cast<size_t>(layer_index)];
  const AttentionPart& part = layer.attention;
  const float epsilon = parts_.hyperparameters.norm_epsilon;
  Normalize(layer.attention_norm, x, work_.normed.Rows(x.rows));
  const Workspace::Projected projected =
      work_.ProjectedRows(parts_.hyperparameters.layer(layer_index), x.rows);
  Multiply(part.qkv, work_.normed.Rows(x.rows), projected.all);
  if (!part.q_norm.empty()) backend_.RmsNormHeads(projected.q, part.q_norm, epsilon);
  if (!part.k_norm.empty()) backend_.RmsNormHeads(projected.k, part.k_norm, epsilon);
}

void LayerRunner::Complete(int layer_index, const Matrix& x, int64_t first,
                           const std::function<void()>& overlapped) const {
  if (x.rows == 0) {
    if (overlapped) overlapped();
    return;
  }
  const Layer& layer = parts_.layers[static_cast<size_t>(layer_index)];
  const Matrix normed = work_.normed.Rows(first, x.rows);
  const Matrix attended =
      work_.AttendedRows(parts_.hyperparameters.layer(layer_index), first, x.rows);
  const bool parallel = layer.residual == Layer::Residual::kParallel;
  if (parallel && layer.feed_forward_norm) Normalize(layer.feed_forward_norm, x, normed);
  Multiply(layer.attention.output, attended, x, /*accumulate=*/true);
  if (!parallel) Normalize(layer.feed_forward_norm, x, normed);
  FeedForward(layer.feed_forward, normed, x, overlapped);
}

// `overlapped` runs during the first product: it is the layer's largest, so it hides the most.
void LayerRunner::FeedForward(const FeedForwardPart& part, const Matrix& in, const Matrix& x,
                              const std::function<void()>& overlapped) const {
  const int64_t width = part.width;
  const Matrix inner = work_.inner.Rows(in.rows);
  const Matrix gate = inner.Cols(0, width);
  if (part.gated) {
    Multiply(part.input, in, inner.Cols(0, 2 * width), /*accumulate=*/false, overlapped);
    backend_.Activate(part.activation, gate, inner.Cols(width, width), gate);
  } else {
    Multiply(part.input, in, gate, /*accumulate=*/false, overlapped);
    backend_.Activate(part.activation, gate, {}, gate);
  }
  Multiply(part.output, gate, x, /*accumulate=*/true);
}

void LayerRunner::Normalize(const Norm& norm, const Matrix& x, const Matrix& out) const {
  const float epsilon = parts_.hyperparameters.norm_epsilon;
  switch (parts_.norm) {
    case NormKind::kRms:
      return backend_.RmsNorm(x, norm.weight, epsilon, out);
    case NormKind::kLayer:
      return backend_.LayerNorm(x, norm.weight, norm.bias, epsilon, out);
  }
}

void LayerRunner::Multiply(const Product& product, const Matrix& x, const Matrix& out,
                           bool accumulate, const std::function<void()>& overlapped) const {
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
  backend_.MatMul(x, std::span(jobs).first(product.all().size()), overlapped);
}

Matrix LayerRunner::Logits(const Matrix& x) const {
  const Matrix normed = work_.normed.Rows(x.rows);
  const Matrix logits = work_.logits.Rows(x.rows);
  Normalize(parts_.output_norm, x, normed);
  const kernels::Linear job = {.weight = parts_.output, .bias = {}, .out = logits};
  backend_.MatMul(normed, {&job, 1});
  return logits;
}

}  // namespace winnow::model
