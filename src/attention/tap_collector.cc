#include "attention/tap_collector.h"

#include <algorithm>
#include <vector>

namespace winnow::attention {
namespace {

// Appends rows below rows with fewer columns; the missing columns become zeros: those entries did
// not exist yet.
void AppendRows(std::vector<float>& rows, int n_rows, const std::vector<float>& more, int n_more) {
  const size_t n_columns = more.size() / static_cast<size_t>(n_more);
  const size_t n_old = n_rows == 0 ? 0 : rows.size() / static_cast<size_t>(n_rows);
  rows.resize(static_cast<size_t>(n_rows) * n_columns + more.size());
  // From the last row on, because rows move towards the end.
  for (auto row = static_cast<size_t>(n_rows); row-- > 0;) {
    const auto from = rows.begin() + static_cast<ptrdiff_t>(row * n_old);
    const auto to = rows.begin() + static_cast<ptrdiff_t>(row * n_columns);
    const auto old_end = to + static_cast<ptrdiff_t>(n_old);
    if (from != to) std::move_backward(from, from + static_cast<ptrdiff_t>(n_old), old_end);
    std::fill(old_end, to + static_cast<ptrdiff_t>(n_columns), 0.0f);
  }
  std::copy(more.begin(), more.end(), rows.end() - static_cast<ptrdiff_t>(more.size()));
}

using Sums = std::vector<std::vector<double>>;

void AddSums(Sums& all, const Sums& more) {
  all.resize(more.size());
  for (size_t list = 0; list < more.size(); ++list) {
    std::vector<double>& sums = all[list];
    sums.resize(more[list].size(), 0.0);
    for (size_t entry = 0; entry < sums.size(); ++entry) sums[entry] += more[list][entry];
  }
}

using Largest = std::vector<std::vector<float>>;

void TakeMaxima(Largest& all, const Largest& more) {
  all.resize(more.size());
  for (size_t list = 0; list < more.size(); ++list) {
    std::vector<float>& largest = all[list];
    largest.resize(more[list].size(), 0.0f);
    for (size_t entry = 0; entry < largest.size(); ++entry) {
      largest[entry] = std::max(largest[entry], more[list][entry]);
    }
  }
}

}  // namespace

void TapCollector::Start(const kernels::TapSpec& spec, int64_t n_queries) {
  spec_ = spec;
  n_queries_ = n_queries;
  n_added_ = 0;
}

int64_t TapCollector::first_query() const {
  if (spec_.sees_all()) return 0;
  return std::max<int64_t>(0, n_queries_ - std::max(spec_.last_rows, spec_.last_sums));
}

kernels::TapSpec TapCollector::SpanTaps(int64_t first, int64_t end) const {
  kernels::TapSpec spec = spec_;
  const auto part_of_last = [&](int n) {
    return static_cast<int>(std::max<int64_t>(0, end - std::max(first, n_queries_ - n)));
  };
  spec.last_rows = part_of_last(spec_.last_rows);
  spec.last_sums = part_of_last(spec_.last_sums);
  return spec;
}

void TapCollector::Add() {
  if (n_added_++ == 0) return;
  if (block_.n_last_rows > 0) {
    all_.last_rows.resize(block_.last_rows.size());
    for (size_t list = 0; list < block_.last_rows.size(); ++list) {
      AppendRows(all_.last_rows[list], all_.n_last_rows, block_.last_rows[list],
                 block_.n_last_rows);
    }
    all_.n_last_rows += block_.n_last_rows;
  }
  if (block_.n_last_sums > 0) {
    AddSums(all_.last_sums, block_.last_sums);
    all_.n_last_sums += block_.n_last_sums;
  }
  if (spec_.column_sums) AddSums(all_.column_sums, block_.column_sums);
  if (spec_.square_sums) AddSums(all_.square_sums, block_.square_sums);
  if (spec_.column_max) TakeMaxima(all_.column_max, block_.column_max);
}

}  // namespace winnow::attention
