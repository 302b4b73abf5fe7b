#include "kernels/taps.h"

#include <algorithm>
#include <vector>

namespace winnow::kernels {
namespace {

// resize() instead of assign(): assign() allocates exactly what it needs, so a list that grows by
// one entry per step would be reallocated in every step.
template <typename T>
void Zero(std::vector<T>& values, int64_t n) {
  values.resize(static_cast<size_t>(n));
  std::fill(values.begin(), values.end(), T{0});
}

}  // namespace

void PrepareTaps(const TapSpec& spec, int64_t n_queries, int64_t n_lists, Taps& found) {
  const auto lists = static_cast<size_t>(n_lists);
  found.last_rows.resize(spec.last_rows > 0 ? lists : 0);
  found.n_last_rows = static_cast<int>(std::min<int64_t>(spec.last_rows, n_queries));
  found.n_last_sums = static_cast<int>(std::min<int64_t>(spec.last_sums, n_queries));
  found.last_sums.resize(spec.last_sums > 0 ? lists : 0);
  found.column_sums.resize(spec.column_sums ? lists : 0);
  found.square_sums.resize(spec.square_sums ? lists : 0);
  found.column_max.resize(spec.column_max ? lists : 0);
}

void PrepareTapList(const TapSpec& spec, int64_t list, int64_t n_entries, Taps& found) {
  const auto i = static_cast<size_t>(list);
  if (spec.last_rows > 0) Zero(found.last_rows[i], found.n_last_rows * n_entries);
  if (spec.last_sums > 0) Zero(found.last_sums[i], n_entries);
  if (spec.column_sums) Zero(found.column_sums[i], n_entries);
  if (spec.square_sums) Zero(found.square_sums[i], n_entries);
  if (spec.column_max) Zero(found.column_max[i], n_entries);
}

}  // namespace winnow::kernels
