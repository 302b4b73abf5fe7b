#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/ops.h"

// Matrices of doubles, and sums over their rows in a fixed order.
namespace winnow::compression::methods {

// Row-major.
struct Numbers {
  size_t cols = 0;
  std::vector<double> values;

  Numbers() = default;
  Numbers(size_t rows, size_t n_cols) : cols(n_cols), values(rows * n_cols) {}
  size_t rows() const { return cols == 0 ? 0 : values.size() / cols; }
  std::span<double> operator[](size_t row) { return std::span(values).subspan(row * cols, cols); }
  std::span<const double> operator[](size_t row) const {
    return std::span(values).subspan(row * cols, cols);
  }
};

struct Rows {
  size_t begin = 0, end = 0;
};

// to[j] += factor(row) * from[row][first_col + j], row by row in order, so that the sums are
// reproducible. Takes eight rows at a time: a sum is loaded and stored once for all eight.
template <class Factor>
void AddMultiples(std::span<double> to, const Numbers& from, Rows rows, size_t first_col,
                  const Factor& factor) {
  constexpr size_t kAtOnce = 8;
  double* __restrict sums = to.data();
  const size_t n = to.size(), stride = from.cols;
  size_t row = rows.begin;
  for (; row + kAtOnce <= rows.end; row += kAtOnce) {
    std::array<double, kAtOnce> f;
    for (size_t i = 0; i < kAtOnce; ++i) f[i] = factor(row + i);
    const double* x = from.values.data() + row * stride + first_col;
    for (size_t j = 0; j < n; ++j) {
      double sum = sums[j];
      for (size_t i = 0; i < kAtOnce; ++i) sum += f[i] * x[i * stride + j];
      sums[j] = sum;
    }
  }
  for (; row < rows.end; ++row) {
    const double f = factor(row);
    const double* x = from.values.data() + row * stride + first_col;
    for (size_t j = 0; j < n; ++j) sums[j] += f * x[j];
  }
}

// Splits [begin, end) into parts of `size` (the last may be shorter) and runs body(begin, end) for
// each, on all threads.
template <class Body>
void ForEachPart(kernels::Backend& backend, size_t begin, size_t end, size_t size,
                 const Body& body) {
  const size_t n = (end - begin + size - 1) / size;
  backend.ForEach(static_cast<int64_t>(n), [&](int64_t i) {
    const size_t first = begin + static_cast<size_t>(i) * size;
    body(first, std::min(end, first + size));
  });
}

// Entries per task.
constexpr size_t kPart = 256;

// How many items of `work` each fit into max_work, at least 1 and at most n.
inline size_t CountWithin(int64_t max_work, size_t work, size_t n) {
  const auto count = static_cast<size_t>(max_work) / (work == 0 ? 1 : work);
  return count < 1 ? 1 : count < n ? count : n;
}

}  // namespace winnow::compression::methods
