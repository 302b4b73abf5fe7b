#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "compression/error_profile.h"
#include "compression/methods/winnow_reference.h"

// How many entries each head gets (winnow.cc): error curves, and water-filling over them.
namespace winnow::compression::methods {

// Sizes at which a curve over n entries is computed: 1 to 8, then steps of 2^(1/3), then n.
std::vector<int64_t> CurveSizes(int64_t n);

// Error curve of entries in a given order: the first `n_fixed` always stay, the others are kept in
// order.
//  gram [group][value_dim, value_dim], W^T W of the query heads' output projections
// Exact: the output of a row over the first k entries is (own part + fixed part + their part) /
// (sum of their masses). Cost: O(rows * group * (n * (key_dim + value_dim) + sizes * value_dim^2)).
ErrorCurve MakeErrorCurve(const kernels::Backend& backend, const ReferenceRows& rows,
                          const HeadEntriesOnHost& entries, int64_t n_fixed,
                          std::span<const std::vector<float>> gram);

// Sizes [curve] that minimize the sum of the curves' lower convex hulls: `total` entries in all,
// for each head at least `floor` and at most all of its entries. Steepest segments first, of
// equally steep ones the earlier head's. Uses all of `total` unless every head keeps everything.
// Requires: the floors fit.
std::vector<int64_t> FillCurves(std::span<const ErrorCurve> curves, int64_t floor, int64_t total);

}  // namespace winnow::compression::methods
