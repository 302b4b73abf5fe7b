#pragma once

#include <cstddef>
#include <span>
#include <vector>

// Attention Matching's fits for one KV head, on plain numbers (arXiv:2602.16284).
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

// X that makes |A X - B|^2 least, of several the smallest. A's columns, or rows where there are
// fewer, are made independent by a trace of regularisation, 1e-9 of their mean square.
//   a [n, k], b [n, m]; result [k, m]
Numbers LeastSquares(const Numbers& a, const Numbers& b);

// Factors of the kept entries' weights that give every row the mass of all entries: least squares
// within [low, high], by the clamped solution without bounds and `steps` steps of projected
// gradient descent.
//   kept  [row, kept entry] exp(logit - row's largest)
//   mass  [row], the sum over all entries
std::vector<double> FitFactors(const Numbers& kept, std::span<const double> mass, double low,
                               double high, int steps);

}  // namespace winnow::compression::methods
