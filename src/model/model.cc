#include "model/model.h"

#include <algorithm>
#include <utility>

#include "model/parts.h"
#include "model/rope.h"

namespace winnow::model {

Model::Model(ModelParts parts, kernels::Backend& backend)
    : backend_(backend),
      parts_(std::make_unique<const ModelParts>(std::move(parts))),
      // With capped distances a query stands as far as the cap, which may be the trained context.
      rope_(std::make_unique<RopePositions>(
          backend, hyperparameters().rope, context(),
          std::max(context(), hyperparameters().trained_context) + 1)) {}

Model::~Model() = default;

const Hyperparameters& Model::hyperparameters() const { return parts_->hyperparameters; }
int64_t Model::n_parameters() const { return parts_->n_parameters; }
int64_t Model::context() const { return parts_->context; }

cache::CacheShape Model::cache_shape() const {
  const Hyperparameters& h = hyperparameters();
  return {.n_layers = h.n_layers,
          .n_kv_heads = h.n_kv_heads,
          .key_dim = h.key_dim,
          .value_dim = h.value_dim};
}

}  // namespace winnow::model
