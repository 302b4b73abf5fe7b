#include "compression/methods/attention_fit.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "compression/testing/random.h"
#include "kernels/backends.h"

namespace winnow::compression::methods {
namespace {

constexpr int64_t kAll = int64_t{1} << 60;

Numbers Random(int64_t seed, size_t rows, size_t cols) {
  Numbers out(rows, cols);
  for (size_t i = 0; i < out.values.size(); ++i) {
    out.values[i] = testing::Random({seed, static_cast<int64_t>(i)}) - 0.3;
  }
  return out;
}

Numbers Product(const Numbers& a, const Numbers& b) {
  Numbers out(a.rows(), b.cols);
  for (size_t i = 0; i < a.rows(); ++i) {
    for (size_t k = 0; k < a.cols; ++k) {
      for (size_t j = 0; j < b.cols; ++j) out[i][j] += a[i][k] * b[k][j];
    }
  }
  return out;
}

// Solves in one piece.
Numbers Solution(const Numbers& a, const Numbers& b) {
  const auto backend = kernels::MakeReferenceBackend();
  LeastSquares fit;
  fit.Run(*backend, a, b, kAll);
  EXPECT_TRUE(fit.done());
  return fit.solution();
}

std::vector<double> Factors(const Numbers& kept, const std::vector<double>& mass, double low,
                            double high, int steps) {
  const auto backend = kernels::MakeReferenceBackend();
  FactorFit fit(low, high, steps);
  fit.Run(*backend, kept, mass, kAll);
  EXPECT_TRUE(fit.done());
  return fit.factors();
}

// The residual is orthogonal to every column.
TEST(AttentionFitTest, ResidualIsOrthogonalToColumns) {
  const Numbers a = Random(1, 20, 6), b = Random(2, 20, 3);
  Numbers rest = Product(a, Solution(a, b));
  for (size_t i = 0; i < rest.values.size(); ++i) rest.values[i] -= b.values[i];
  for (size_t column = 0; column < 6; ++column) {
    for (size_t j = 0; j < 3; ++j) {
      double product = 0;
      for (size_t row = 0; row < 20; ++row) product += a[row][column] * rest[row][j];
      EXPECT_NEAR(product, 0, 1e-7);
    }
  }
}

// With fewer equations than unknowns all equations hold, and the solution is the smallest one: a
// combination of the rows.
TEST(AttentionFitTest, LeastSquaresTakesTheSmallestOfManySolutions) {
  const Numbers a = Random(3, 4, 9), b = Random(4, 4, 2);
  const Numbers x = Solution(a, b);
  const Numbers found = Product(a, x);
  for (size_t i = 0; i < b.values.size(); ++i) EXPECT_NEAR(found.values[i], b.values[i], 1e-6);
  Numbers rows(9, 4);  // a transposed
  for (size_t i = 0; i < 4; ++i) {
    for (size_t j = 0; j < 9; ++j) rows[j][i] = a[i][j];
  }
  const Numbers back = Product(rows, Solution(rows, x));
  for (size_t i = 0; i < x.values.size(); ++i) EXPECT_NEAR(back.values[i], x.values[i], 1e-6);
}

double Loss(const Numbers& kept, const std::vector<double>& mass, const std::vector<double>& b) {
  double loss = 0;
  for (size_t row = 0; row < kept.rows(); ++row) {
    double sum = -mass[row];
    for (size_t i = 0; i < kept.cols; ++i) sum += kept[row][i] * b[i];
    loss += sum * sum;
  }
  return loss;
}

TEST(AttentionFitTest, FactorsFindTheMassWithinTheirBounds) {
  Numbers kept(30, 4);
  for (size_t i = 0; i < kept.values.size(); ++i) {
    kept.values[i] = testing::Random({5, static_cast<int64_t>(i)});
  }
  const std::vector<double> within = {0.5, 1.5, 3, 1};
  std::vector<double> mass(30, 0.0);
  for (size_t row = 0; row < 30; ++row) {
    for (size_t i = 0; i < 4; ++i) mass[row] += kept[row][i] * within[i];
  }
  const std::vector<double> found = Factors(kept, mass, 0.1, 10, 2);
  for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(found[i], within[i], 1e-6);

  // The unbounded solution has a factor of 3, above the bound of 2: it is clamped and the other
  // factors compensate. With more steps the loss falls to that of a grid search.
  const std::vector<double> clamped = Factors(kept, mass, 0.1, 2, 0);
  const std::vector<double> some = Factors(kept, mass, 0.1, 2, 2);
  const std::vector<double> many = Factors(kept, mass, 0.1, 2, 3000);
  EXPECT_LT(Loss(kept, mass, some), Loss(kept, mass, clamped));
  EXPECT_LT(Loss(kept, mass, many), Loss(kept, mass, some));
  double min = INFINITY;
  std::vector<double> b(4);
  for (b[0] = 0.1; b[0] <= 2; b[0] += 0.1) {
    for (b[1] = 0.1; b[1] <= 2; b[1] += 0.1) {
      for (b[2] = 0.1; b[2] <= 2.01; b[2] += 0.1) {
        for (b[3] = 0.1; b[3] <= 2; b[3] += 0.1) min = std::min(min, Loss(kept, mass, b));
      }
    }
  }
  EXPECT_LE(Loss(kept, mass, many), min);
  for (const double x : some) {
    EXPECT_GE(x, 0.1);
    EXPECT_LE(x, 2);
  }
}

}  // namespace
}  // namespace winnow::compression::methods
