#pragma once

#include <cstdint>
#include <vector>

#include "model/architecture.h"
#include "model/model.h"
#include "model/tensor_reader.h"

namespace winnow::model {

// A loaded model: layers, embedding and output.
struct ModelParts {
  Hyperparameters hyperparameters;
  NormKind norm = NormKind::kRms;
  const kernels::Weight* embedding = nullptr;  // [vocabulary, embedding]
  std::vector<Layer> layers;
  Norm output_norm;
  const kernels::Weight* output = nullptr;  // equals `embedding` if the file ties them
  WeightStore store;                        // owns the weights and vectors above
  int64_t n_parameters = 0;
  int64_t context = 0;
  int64_t text_context = 0;  // `context` without LoadOptions::spare_context
};

}  // namespace winnow::model
