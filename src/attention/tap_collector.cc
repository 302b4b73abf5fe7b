#include "attention/tap_collector.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace winnow::attention {
namespace {

// Appends rows of `n_slots` columns below rows of fewer: what was not there yet was not seen.
void AppendRows(std::vector<float>& rows, int n_rows, const std::vector<float>& more, int n_more) {
  const size_t n_slots = more.size() / static_cast<size_t>(n_more);
  const size_t n_old = n_rows == 0 ? 0 : rows.size() / static_cast<size_t>(n_rows);
  std::vector<float> joined(static_cast<size_t>(n_rows) * n_slots + more.size(), 0.0f);
  for (size_t row = 0; row < static_cast<size_t>(n_rows); ++row) {
    std::copy_n(rows.begin() + static_cast<ptrdiff_t>(row * n_old), n_old,
                joined.begin() + static_cast<ptrdiff_t>(row * n_slots));
  }
  std::copy(more.begin(), more.end(), joined.end() - static_cast<ptrdiff_t>(more.size()));
  rows = std::move(joined);
}

}  // namespace

TapCollector::TapCollector(const kernels::TapSpec& spec, int64_t n_queries)
    : spec_(spec), n_queries_(n_queries) {}

int64_t TapCollector::first_query() const {
  if (spec_.column_sums) return 0;
  return std::max<int64_t>(0, n_queries_ - spec_.last_rows);
}

kernels::TapSpec TapCollector::SpecOf(int64_t first, int64_t end) const {
  kernels::TapSpec spec = spec_;
  const int64_t first_row = std::max(first, n_queries_ - spec_.last_rows);
  spec.last_rows = static_cast<int>(std::max<int64_t>(0, end - first_row));
  return spec;
}

void TapCollector::Add(kernels::Taps&& block) {
  if (block.n_last_rows > 0) {
    all_.last_rows.resize(block.last_rows.size());
    for (size_t head = 0; head < block.last_rows.size(); ++head) {
      AppendRows(all_.last_rows[head], all_.n_last_rows, block.last_rows[head], block.n_last_rows);
    }
    all_.n_last_rows += block.n_last_rows;
  }
  if (spec_.column_sums) {
    all_.column_sums.resize(block.column_sums.size());
    for (size_t head = 0; head < block.column_sums.size(); ++head) {
      std::vector<double>& sums = all_.column_sums[head];
      sums.resize(block.column_sums[head].size(), 0.0);
      for (size_t slot = 0; slot < sums.size(); ++slot) sums[slot] += block.column_sums[head][slot];
    }
  }
}

kernels::Taps TapCollector::Take() { return std::exchange(all_, {}); }

}  // namespace winnow::attention
