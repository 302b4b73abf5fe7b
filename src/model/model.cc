#include "model/model.h"

#include <algorithm>
#include <utility>

#include "model/parts.h"
#include "model/rope.h"

namespace winnow::model {

Model::Model(ModelParts parts, kernels::Backend& backend)
    : backend_(backend), parts_(std::make_unique<const ModelParts>(std::move(parts))) {
  std::vector<const RopeParameters*> distinct;
  for (const LayerSpec& layer : hyperparameters().layers) {
    const auto same = std::ranges::find_if(
        distinct, [&](const RopeParameters* rope) { return *rope == layer.rope; });
    rope_of_layer_.push_back(static_cast<size_t>(same - distinct.begin()));
    if (same != distinct.end()) continue;
    distinct.push_back(&layer.rope);
    // + 1: with capped distances, queries are rotated to the cap, which may be the trained context.
    ropes_.push_back(std::make_unique<RopePositions>(
        backend, layer.rope, parts_->text_context,
        std::max(context(), hyperparameters().trained_context) + 1));
  }
}

Model::~Model() = default;

const Hyperparameters& Model::hyperparameters() const { return parts_->hyperparameters; }
int64_t Model::n_parameters() const { return parts_->n_parameters; }
int64_t Model::context() const { return parts_->context; }

cache::CacheShape Model::cache_shape() const {
  std::vector<cache::LayerShape> layers;
  for (const LayerSpec& layer : hyperparameters().layers) {
    layers.push_back(
        {.n_kv_heads = layer.n_kv_heads, .key_dim = layer.key_dim, .value_dim = layer.value_dim});
  }
  return cache::MakeShape(layers);
}

bool Model::Fits(const cache::CacheConfig& config) const {
  const Hyperparameters& h = hyperparameters();
  if (config.shape.n_layers != h.n_layers) return false;
  for (int layer = 0; layer < h.n_layers; ++layer) {
    const cache::LayerShape found = config.shape.layer(layer);
    const LayerSpec& spec = h.layer(layer);
    if (found.n_kv_heads != spec.n_kv_heads * config.n_copies || found.key_dim != spec.key_dim ||
        found.value_dim != spec.value_dim) {
      return false;
    }
  }
  return true;
}

bool Hyperparameters::has_equal_heads() const {
  const LayerSpec& first = layers.front();
  return std::ranges::all_of(layers, [&](const LayerSpec& layer) {
    return layer.n_heads == first.n_heads && layer.n_kv_heads == first.n_kv_heads &&
           layer.key_dim == first.key_dim && layer.value_dim == first.value_dim;
  });
}

}  // namespace winnow::model
