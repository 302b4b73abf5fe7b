#pragma once

#include <vector>

#include "compression/parts.h"

namespace winnow::compression::score {

enum class Norm { kL1, kL2 };

// Norms of what query head `q_head` adds to the residual stream with the values of the ranks in
// `region` of its KV head, each at full weight: |W_O v| [region.size()]. Where the model's output
// projection is not known (winnow replay), of the values themselves.
std::vector<double> ProjectedNorms(const LayerCall& call, int q_head, Region region, Norm norm);

// The same, the mean over the query heads of a KV head's group.
std::vector<double> MeanProjectedNorms(const LayerCall& call, int kv_head, Region region,
                                       Norm norm);

}  // namespace winnow::compression::score
