#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "compression/error_profile.h"
#include "compression/methods/winnow_reference.h"

// How many entries each head gets (winnow.cc): error curves, and water-filling over them.
namespace winnow::compression::methods {

// Sizes at which a curve over n entries is computed: 1 to 8, then ratios of 2^(1/3), then n.
std::vector<int64_t> CurveSizes(int64_t n);

// Of entries in an order: the first `n_fixed` stay whatever is chosen, the others are kept from the
// first on. gram [group][value_dim, value_dim]: W^T W of the query heads' output projections.
// Exact: the output of a row over the first k entries is (own part + fixed part + their part) /
// (sum of their masses).
// Cost: O(rows * group * (n * (key_dim + value_dim) + sizes * value_dim^2)).
ErrorCurve MakeErrorCurve(const kernels::Backend& backend, const ReferenceRows& rows,
                          const HeadEntriesOnHost& entries, int64_t n_fixed,
                          std::span<const std::vector<float>> gram);

// The least of the sum of the curves' lower convex hulls when `total` entries are given out, each
// head at least `floor` of its entries and at most all: sizes [curve]. Steepest segments first, of
// equally steep ones that of the earlier head; all of `total` is used unless every head is whole.
// Requires: the floors fit.
std::vector<int64_t> FillCurves(std::span<const ErrorCurve> curves, int64_t floor, int64_t total);

}  // namespace winnow::compression::methods
