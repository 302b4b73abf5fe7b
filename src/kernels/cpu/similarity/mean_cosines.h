#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "base/thread_pool.h"
#include "kernels/cpu/head_rows.h"

namespace winnow::kernels::cpu {

// Working memory that is kept between calls.
struct MeanScratch {
  std::vector<double> sums;      // [part, dim] of unit vectors
  std::vector<float> inverse;    // [row] 1 / length; 0 for a zero row
  std::vector<float> floats;     // [thread, 2 * padded dim]
  std::vector<float> direction;  // [padded dim] the mean's, of length 1
};

// As Backend::CompareWithMean. Cost: two passes over the rows. The same for any number of threads.
void CompareWithMean(const HostHeadRows& head, std::span<const int32_t> rows,
                     std::span<double> cosines, int64_t target, MeanScratch& scratch,
                     ThreadPool& pool);

}  // namespace winnow::kernels::cpu
