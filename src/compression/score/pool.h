#pragma once

#include <span>
#include <vector>

#include "compression/score/score.h"
#include "kernels/ops.h"

namespace winnow::compression::score {

// Smooths `x` over `kernel` neighbours (odd) in place (docs/methods/semantics.md#notation).
// Averages count what lies beyond the ends as zeros; maxima are over what exists. `copy` is working
// memory.
void Smooth(Pool pool, int kernel, std::vector<double>& copy, std::span<double> x);

kernels::TapSpec::Reduce TapReduceFrom(Reduce reduce);

}  // namespace winnow::compression::score
