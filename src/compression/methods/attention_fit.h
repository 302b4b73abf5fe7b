#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "compression/methods/attention_numbers.h"
#include "kernels/ops.h"

// Attention Matching's fits for one KV head, on plain matrices (arXiv:2602.16284), in pieces. Run
// works on all threads until it has done at least `max_work` multiply-adds or is done, and returns
// how many it did. It exceeds `max_work` by less than the smallest piece. Neither the size of the
// pieces nor the number of threads changes a bit of the result.
namespace winnow::compression::methods {

// X that minimizes |A X - B|^2; of several solutions the smallest. Regularization keeps the normal
// equations positive definite: 1e-9 times the mean squared norm of A's columns (of its rows where
// there are fewer rows than columns) is added to their diagonal.
//   a [n, k], b [n, m], the same in all calls; solution [k, m]
// With s = min(n, k): n k (s / 2 + m) multiply-adds for the products, s^3 / 6 for the Cholesky
// factor, s^2 m for the triangular solves. The smallest piece has s (s / 2 + m + 512).
class LeastSquares {
 public:
  int64_t Run(kernels::Backend& backend, const Numbers& a, const Numbers& b, int64_t max_work);
  bool done() const { return stage_ == Stage::kDone; }
  Numbers& solution() { return x_; }
  const Numbers& solution() const { return x_; }

 private:
  enum class Stage { kBegin, kTranspose, kSquare, kFactor, kForward, kBack, kCombine, kDone };
  void Begin(const Numbers& a, const Numbers& b);
  int64_t Transpose(kernels::Backend& backend, const Numbers& a, int64_t max_work);
  int64_t Square(kernels::Backend& backend, const Numbers& a, const Numbers& b, int64_t max_work);
  int64_t Factor(kernels::Backend& backend, int64_t max_work);
  int64_t Forward(kernels::Backend& backend, int64_t max_work);
  int64_t Back(kernels::Backend& backend, int64_t max_work);
  int64_t Combine(kernels::Backend& backend, int64_t max_work);
  void Enter(Stage stage) {
    stage_ = stage;
    next_ = 0;
  }

  Stage stage_ = Stage::kBegin;
  bool wide_ = false;    // fewer rows than columns: the solution is a combination of the rows
  size_t next_ = 0;      // next row that the stage reads or writes; in kFactor, the panel's first
  size_t trailing_ = 0;  // in kFactor: next row below the panel; 0: the panel is not factored
  Numbers transposed_;   // of a, where wide_
  Numbers square_;       // upper triangle; from kFactor on Cholesky's U, with U^T U = square
  Numbers y_;            // right-hand sides, overwritten by the solution of the square system
  Numbers x_;
};

// Factors on the kept entries' weights that give every row the mass of all entries: least squares
// within [low, high]. Starts from the unbounded solution, clamped, and takes `steps` steps of
// projected gradient descent.
//   kept  [row, kept entry] exp(logit - row's largest)
//   mass  [row], the sum over all entries
// Both must be the same in all calls. The smallest piece has 2 rows * entries.
class FactorFit {
 public:
  FactorFit(double low, double high, int steps) : low_(low), high_(high), n_steps_(steps) {}
  int64_t Run(kernels::Backend& backend, const Numbers& kept, std::span<const double> mass,
              int64_t max_work);
  bool done() const { return stage_ == Stage::kDone; }
  const std::vector<double>& factors() const { return factors_; }

 private:
  enum class Stage { kBegin, kSolve, kPower, kDescend, kDone };
  void BeginPower();
  void Power(kernels::Backend& backend, const Numbers& kept);
  void Descend(kernels::Backend& backend, const Numbers& kept, std::span<const double> mass);

  double low_, high_;
  int n_steps_;
  Stage stage_ = Stage::kBegin;
  Numbers target_;
  LeastSquares solve_;
  std::vector<double> factors_;
  std::vector<double> vector_;  // [kept entry], singular vector of the largest singular value
  double square_ = 0;           // square of that singular value
  int n_done_ = 0;              // power iterations, then descent steps
};

}  // namespace winnow::compression::methods
