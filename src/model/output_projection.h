#pragma once

#include <vector>

#include "base/result.h"
#include "model/model.h"

namespace winnow::model {

// Reads the output projection of a layer's attention as floats, row-major [embedding, n_heads *
// value_dim]. Error: memory refused.
Result<std::vector<float>> ReadOutputProjection(const Model& model, int layer);

}  // namespace winnow::model
