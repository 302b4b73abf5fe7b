#pragma once

#include <cstdint>
#include <vector>

#include "model/architecture.h"
#include "model/model.h"
#include "model/tensor_reader.h"

namespace winnow::model {

// A loaded file: the layers and what surrounds them.
struct ModelParts {
  Hyperparameters hyperparameters;
  NormKind norm = NormKind::kRms;
  const kernels::Weight* embedding = nullptr;  // [vocabulary, embedding]
  std::vector<Layer> layers;
  Norm output_norm;
  const kernels::Weight* output = nullptr;  // the same as `embedding` where the file ties them
  WeightStore store;                        // owns what the parts point to
  int64_t n_parameters = 0;
  int64_t context = 0;
  int64_t text_context = 0;  // the same without LoadOptions::spare_context
};

}  // namespace winnow::model
