#pragma once

#include <cstdint>
#include <span>

namespace winnow::compression {

// The output projection of a layer, split by query head. The model implements it, so that this room
// need not include the model.
class OutputProjections {
 public:
  virtual ~OutputProjections() = default;
  virtual int64_t model_dim() const = 0;
  // The columns of the projection that belong to a query head, as floats: out [model_dim,
  // value_dim], row-major. Cost: reads the layer's whole projection when the layer differs from
  // that of the last call.
  virtual void Read(int layer, int q_head, std::span<float> out) const = 0;
};

}  // namespace winnow::compression
