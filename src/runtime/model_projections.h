#pragma once

#include <vector>

#include "compression/output_projections.h"
#include "model/model.h"

namespace winnow::runtime {

// A model's output projections as methods see them. Keeps those of the layer that was read last.
class ModelProjections final : public compression::OutputProjections {
 public:
  // The model must outlive this object.
  explicit ModelProjections(const model::Model& model) : model_(model) {}

  int64_t model_dim() const override { return model_.hyperparameters().embedding; }
  void Read(int layer, int q_head, std::span<float> out) const override;

 private:
  const model::Model& model_;
  mutable int layer_ = -1;
  mutable std::vector<float> weights_;  // [embedding, n_heads * value_dim]
};

}  // namespace winnow::runtime
