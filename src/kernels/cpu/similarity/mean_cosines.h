#pragma once

#include <cstdint>
#include <span>

#include "kernels/cpu/head_rows.h"

namespace winnow::kernels::cpu {

// As Backend::CompareWithMean, in the calling thread: several heads may be compared at once
// (Backend::ForEach). Cost: two passes over the rows.
void CompareWithMean(const HostHeadRows& head, std::span<const int32_t> rows,
                     std::span<double> cosines, int64_t target);

}  // namespace winnow::kernels::cpu
