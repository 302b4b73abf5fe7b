#pragma once

#include <vector>

#include "compression/parts.h"

namespace winnow::compression::score {

enum class Norm { kL1, kL2 };

// Norms of what the values of the ranks in `region` add to the residual stream through query head
// `q_head`, each at full weight: |W_O v| [region.size()]. If the model's output projection is
// unknown (winnow replay), norms of the values themselves.
std::vector<double> ProjectedNorms(const LayerCall& call, int q_head, Region region, Norm norm);

// The mean of these norms over the query heads of a KV head's group.
std::vector<double> MeanProjectedNorms(const LayerCall& call, int kv_head, Region region,
                                       Norm norm);

}  // namespace winnow::compression::score
