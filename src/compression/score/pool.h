#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "compression/score/score.h"
#include "kernels/ops.h"

namespace winnow::compression::score {

// Smooths `x` over `kernel` neighbours (odd) in place (docs/methods/semantics.md#notation).
// Averages count zeros beyond the ends; maxima ignore them. `copy` is a buffer.
void Smooth(Pool pool, int kernel, std::vector<double>& copy, std::span<double> x);

// The largest of x[i] and its neighbours, as Smooth with Pool::kMax computes it.
double MaxNear(std::span<const double> x, int64_t i, int kernel);

kernels::TapSpec::Reduce TapReduceFrom(Reduce reduce);

}  // namespace winnow::compression::score
