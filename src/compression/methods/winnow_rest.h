#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "cache/plan.h"
#include "compression/methods/winnow_reference.h"
#include "kernels/ops.h"

// What replaces evicted entries in winnow (winnow.cc): rest rows, and a refit of the values.
namespace winnow::compression::methods {

// Largest absolute bias of a rest row.
inline constexpr double kMaxBias = 8;

// Divides a head's evicted entries (ranks, ascending) into n_rows runs of equal length, in the
// order of the text, and adds each run as one row to `plan`, in the slot of its newest entry. Key
// and value are means weighted by the attention of the reference rows; the bias is the logarithm of
// (mass of the run) / (mass of the mean key), within +-8. The other entries of a run go to
// plan.evict.  order [rank]: slots.
// Requires: 1 <= n_rows <= evicted.size().
void AddRestRows(const ReferenceRows& rows, const HeadEntriesOnHost& entries,
                 const Targets& targets, std::span<const int32_t> evicted, int64_t n_rows,
                 std::span<const cache::Slot> order, cache::HeadPlan& plan);

// Values of the stored entries that bring the outputs of the reference rows closer to the targets:
// ridge regression on three of four rows, V + A^T (A A^T + mu * mean diag * I)^-1 (target - A V),
// with A the rows' weights over the stored entries, everything weighted by 1 / residual norm.
// Rounded as `value_type` stores them. Empty if the error of the other rows does not fall, or if
// there are fewer than four rows.
//  n_before  number of entries when the rows were taken
std::vector<float> RefitValues(const kernels::Backend& backend, const ReferenceRows& rows,
                               const HeadEntriesOnHost& stored, const Targets& targets,
                               int64_t n_before, kernels::TensorType value_type, double mu = 1);

}  // namespace winnow::compression::methods
