#include "compression/methods/attention_fit.h"

#include <algorithm>
#include <cmath>

namespace winnow::compression::methods {
namespace {

// Solves S X = B in place of B, for S symmetric and positive: Cholesky.
void Solve(Numbers s, Numbers& b) {
  const size_t n = s.rows();
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = 0; j <= i; ++j) {
      double sum = s[i][j];
      for (size_t k = 0; k < j; ++k) sum -= s[i][k] * s[j][k];
      s[i][j] = i == j ? std::sqrt(std::max(sum, 1e-300)) : sum / s[j][j];
    }
  }
  for (size_t i = 0; i < n; ++i) {
    for (size_t k = 0; k < i; ++k) {
      for (size_t c = 0; c < b.cols; ++c) b[i][c] -= s[i][k] * b[k][c];
    }
    for (double& x : b[i]) x /= s[i][i];
  }
  for (size_t i = n; i-- > 0;) {
    for (size_t k = i + 1; k < n; ++k) {
      for (size_t c = 0; c < b.cols; ++c) b[i][c] -= s[k][i] * b[k][c];
    }
    for (double& x : b[i]) x /= s[i][i];
  }
}

void Regularise(Numbers& s) {
  const size_t n = s.rows();
  double trace = 0;
  for (size_t i = 0; i < n; ++i) trace += s[i][i];
  const double add = std::max(1e-9 * trace / static_cast<double>(n), 1e-300);
  for (size_t i = 0; i < n; ++i) s[i][i] += add;
}

}  // namespace

Numbers LeastSquares(const Numbers& a, const Numbers& b) {
  const size_t n = a.rows(), k = a.cols, m = b.cols;
  if (n >= k) {
    Numbers square(k, k), x(k, m);
    for (size_t row = 0; row < n; ++row) {
      for (size_t i = 0; i < k; ++i) {
        const double factor = a[row][i];
        if (factor == 0) continue;
        for (size_t j = 0; j < k; ++j) square[i][j] += factor * a[row][j];
        for (size_t j = 0; j < m; ++j) x[i][j] += factor * b[row][j];
      }
    }
    Regularise(square);
    Solve(std::move(square), x);
    return x;
  }
  // The smallest solution is a combination of the rows.
  Numbers square(n, n), y = b, x(k, m);
  for (size_t i = 0; i < n; ++i) {
    for (size_t j = 0; j < n; ++j) {
      for (size_t c = 0; c < k; ++c) square[i][j] += a[i][c] * a[j][c];
    }
  }
  Regularise(square);
  Solve(std::move(square), y);
  for (size_t row = 0; row < n; ++row) {
    for (size_t i = 0; i < k; ++i) {
      for (size_t j = 0; j < m; ++j) x[i][j] += a[row][i] * y[row][j];
    }
  }
  return x;
}

std::vector<double> FitFactors(const Numbers& kept, std::span<const double> mass, double low,
                               double high, int steps) {
  const size_t n = kept.rows(), k = kept.cols;
  Numbers target(n, 1);
  for (size_t row = 0; row < n; ++row) target[row][0] = mass[row];
  std::vector<double> factors = LeastSquares(kept, target).values;
  for (double& x : factors) x = std::clamp(x, low, high);
  // The largest singular value, by power iteration from a vector of ones.
  std::vector<double> u(k, 1 / std::sqrt(static_cast<double>(std::max<size_t>(k, 1)))), v(n), g(k);
  const auto multiply = [&](std::span<const double> x) {
    for (size_t row = 0; row < n; ++row) {
      v[row] = 0;
      for (size_t i = 0; i < k; ++i) v[row] += kept[row][i] * x[i];
    }
  };
  const auto multiply_back = [&] {
    std::fill(g.begin(), g.end(), 0.0);
    for (size_t row = 0; row < n; ++row) {
      for (size_t i = 0; i < k; ++i) g[i] += kept[row][i] * v[row];
    }
  };
  double square = 0;
  for (int i = 0; i < 20; ++i) {
    multiply(u);
    multiply_back();
    square = 0;
    for (const double x : g) square += x * x;
    square = std::sqrt(square);
    if (!(square > 0)) return factors;
    for (size_t j = 0; j < k; ++j) u[j] = g[j] / square;
  }
  for (int step = 0; step < steps; ++step) {
    multiply(factors);
    for (size_t row = 0; row < n; ++row) v[row] -= mass[row];
    multiply_back();
    for (size_t i = 0; i < k; ++i) factors[i] = std::clamp(factors[i] - g[i] / square, low, high);
  }
  return factors;
}

}  // namespace winnow::compression::methods
