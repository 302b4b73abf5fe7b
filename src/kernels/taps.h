#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/ops.h"

// Allocates the results of taps, for every backend.
namespace winnow::kernels {

// Number of lists in a call's taps: one per KV head, or one per query head if nothing is reduced.
inline int64_t TapLists(TapSpec::Reduce reduce, int64_t n_kv_heads, int group) {
  return reduce == TapSpec::Reduce::kNone ? n_kv_heads * group : n_kv_heads;
}

// Sizes `found` for the taps `spec` of a call of n_queries queries, with n_lists lists;
// PrepareTapList must follow for each list. Reuses the memory of `found`.
void PrepareTaps(const TapSpec& spec, int64_t n_queries, int64_t n_lists, Taps& found);
// Zeroes one list of n_entries entries.
void PrepareTapList(const TapSpec& spec, int64_t list, int64_t n_entries, Taps& found);

}  // namespace winnow::kernels
