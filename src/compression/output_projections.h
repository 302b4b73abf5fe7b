#pragma once

#include <cstdint>
#include <span>

namespace winnow::compression {

// What a layer's output projection makes of the output of one query head. The model stands behind
// it; this room does not see it.
class OutputProjections {
 public:
  virtual ~OutputProjections() = default;
  virtual int64_t model_dim() const = 0;
  // The columns of the projection that belong to a query head, as floats: out [model_dim,
  // value_dim], row-major. Cost: the layer's whole projection is read when the layer changes.
  virtual void Read(int layer, int q_head, std::span<float> out) const = 0;
};

}  // namespace winnow::compression
