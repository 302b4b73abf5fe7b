#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "kernels/cpu/head_rows.h"

namespace winnow::kernels::cpu {

// MeanCosines on plain host memory.
struct HostMeanCosines {
  HostHeadRows head;
  std::span<const int32_t> rows;
  std::span<double> cosines;
};

// See Backend::CosinesToMean. `scratch` keeps its memory between calls. Cost: two passes over the
// rows.
void CosinesToMean(std::span<const HostMeanCosines> heads, int64_t target,
                   std::vector<float>& scratch, ThreadPool& pool);

}  // namespace winnow::kernels::cpu
