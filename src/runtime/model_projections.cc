#include "runtime/model_projections.h"

#include <algorithm>

#include "base/check.h"
#include "model/output_projection.h"

namespace winnow::runtime {

void ModelProjections::Read(int layer, int q_head, std::span<float> out) const {
  const model::Hyperparameters& h = model_.hyperparameters();
  if (layer != layer_) {
    auto weights = model::ReadOutputProjection(model_, layer);
    WINNOW_CHECK(weights.has_value());  // one layer's floats: no more memory than a step takes
    weights_ = std::move(weights).value();
    layer_ = layer;
  }
  const auto dim = static_cast<size_t>(h.layer(layer).value_dim);
  const size_t cols = dim * static_cast<size_t>(h.layer(layer).n_heads);
  WINNOW_CHECK(out.size() == dim * static_cast<size_t>(h.embedding));
  for (size_t row = 0; row < static_cast<size_t>(h.embedding); ++row) {
    std::copy_n(weights_.data() + row * cols + static_cast<size_t>(q_head) * dim, dim,
                out.data() + row * dim);
  }
}

}  // namespace winnow::runtime
