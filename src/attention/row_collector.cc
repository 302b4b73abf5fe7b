#include "attention/row_collector.h"

#include <algorithm>
#include <cmath>
#include <numeric>

namespace winnow::attention {

std::vector<int64_t> ChooseRows(const RowSpec& spec, int64_t n_rows) {
  std::vector<int64_t> rows;
  if (!spec.any()) return rows;
  const int64_t n =
      spec.which == RowSpec::Which::kAll ? n_rows : std::clamp<int64_t>(spec.n, 0, n_rows);
  rows.resize(static_cast<size_t>(n));
  if (spec.which == RowSpec::Which::kEven) {
    for (int64_t i = 0; i < n; ++i) rows[static_cast<size_t>(i)] = (2 * i + 1) * n_rows / (2 * n);
  } else {
    std::iota(rows.begin(), rows.end(), n_rows - n);
  }
  return rows;
}

void RowCollector::Start(const RowSpec& spec, int64_t n_rows) {
  spec_ = spec;
  n_rows_ = n_rows;
  rows_.rows = ChooseRows(spec, n_rows);
  rows_.positions.clear();
  rows_.queries_before_rope.clear();
  rows_.queries.clear();
  rows_.outputs.clear();
  rows_.norms.clear();
}

std::pair<size_t, size_t> RowCollector::Within(int64_t first, int64_t n) const {
  const auto begin = std::ranges::lower_bound(rows_.rows, first);
  const auto end = std::ranges::lower_bound(rows_.rows, first + n);
  return {static_cast<size_t>(begin - rows_.rows.begin()),
          static_cast<size_t>(end - rows_.rows.begin())};
}

void RowCollector::Copy(kernels::Backend& backend, int64_t first, const kernels::Matrix& from,
                        std::vector<float>& to) const {
  const auto [begin, end] = Within(first, from.rows);
  const auto cols = static_cast<size_t>(from.cols);
  const size_t at = to.size();
  to.resize(at + (end - begin) * cols);
  for (size_t i = begin; i < end; ++i) {
    backend.Read(from.Rows(rows_.rows[i] - first, 1),
                 std::span(to).subspan(at + (i - begin) * cols, cols));
  }
}

void RowCollector::AddBefore(kernels::Backend& backend, int64_t first, const kernels::Matrix& q,
                             const kernels::Matrix& hidden,
                             std::span<const cache::Position> positions) {
  if (!any()) return;
  const auto [begin, end] = Within(first, q.rows);
  for (size_t i = begin; i < end; ++i) {
    rows_.positions.push_back(positions[static_cast<size_t>(rows_.rows[i] - first)]);
  }
  if (spec_.queries_before_rope) Copy(backend, first, q, rows_.queries_before_rope);
  if (!spec_.norms) return;
  for (size_t i = begin; i < end; ++i) {
    double sum = 0;
    if (!hidden.empty()) {
      row_.resize(static_cast<size_t>(hidden.cols));
      backend.Read(hidden.Rows(rows_.rows[i] - first, 1), row_);
      for (const float x : row_) sum += double{x} * x;
    }
    rows_.norms.push_back(static_cast<float>(std::sqrt(sum)));
  }
}

void RowCollector::AddQueries(kernels::Backend& backend, int64_t first, const kernels::Matrix& q) {
  if (any() && spec_.queries) Copy(backend, first, q, rows_.queries);
}

void RowCollector::AddOutputs(kernels::Backend& backend, int64_t first,
                              const kernels::Matrix& out) {
  if (wants_outputs()) Copy(backend, first, out, rows_.outputs);
}

}  // namespace winnow::attention
