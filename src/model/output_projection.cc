#include "model/output_projection.h"

#include <memory>
#include <numeric>

#include "base/check.h"
#include "model/parts.h"

namespace winnow::model {

Result<std::vector<float>> ReadOutputProjection(const Model& model, int layer) {
  const ModelParts& parts = model.parts();
  const Hyperparameters& h = parts.hyperparameters;
  kernels::Backend& backend = model.backend();
  const int64_t cols = int64_t{h.layer(layer).n_heads} * h.layer(layer).value_dim;
  std::vector<float> all;
  all.reserve(static_cast<size_t>(h.embedding * cols));
  // Pieces write their outputs side by side, so their rows follow each other.
  for (const Product::Piece& piece :
       parts.layers[static_cast<size_t>(layer)].attention.output.all()) {
    const int64_t n = piece.weight->rows();
    WINNOW_CHECK(piece.weight->cols() == cols);
    std::vector<int32_t> rows(static_cast<size_t>(n));
    std::iota(rows.begin(), rows.end(), 0);
    WINNOW_ASSIGN(const std::unique_ptr<kernels::Storage> storage,
                  backend.Allocate(n * cols * static_cast<int64_t>(sizeof(float))));
    const kernels::Matrix out = {
        .storage = storage.get(), .offset = 0, .rows = n, .cols = cols, .stride = cols};
    backend.GetRows(*piece.weight, rows, out);
    const size_t at = all.size();
    all.resize(at + static_cast<size_t>(n * cols));
    backend.Read(out, std::span(all).subspan(at));
  }
  WINNOW_CHECK(static_cast<int64_t>(all.size()) == h.embedding * cols);
  return all;
}

}  // namespace winnow::model
