#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "compression/methods/attention_numbers.h"
#include "kernels/ops.h"

// Attention Matching's fits for one KV head, on plain numbers (arXiv:2602.16284), in pieces. Run
// goes on, on all threads, until it has done `max_work` multiply-adds, and returns how many they
// were: less than the smallest piece has more. Neither where a piece is cut nor the number of
// threads changes a bit of what comes out.
namespace winnow::compression::methods {

// X that makes |A X - B|^2 least, of several the smallest. A's columns, or rows where there are
// fewer, are made independent by a trace of regularisation, 1e-9 of their mean square.
//   a [n, k], b [n, m], the same in all calls; solution [k, m]
// With s the smaller of n and k: n k (s / 2 + m) multiply-adds for the products, s^3 / 6 for
// Cholesky's factor, s^2 m for what is solved with it. The smallest piece has s (s / 2 + m + 512).
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
  size_t next_ = 0;      // row of what the stage reads or makes; in kFactor, the first of the panel
  size_t trailing_ = 0;  // in kFactor: the next row below the panel; 0: the panel is to be made
  Numbers transposed_;   // of a, where wide_
  Numbers square_;       // the upper half; from kFactor on Cholesky's U, with U^T U = square
  Numbers y_;            // right sides, in whose place the solution of `square` comes
  Numbers x_;
};

// Factors of the kept entries' weights that give every row the mass of all entries: least squares
// within [low, high], by the clamped solution without bounds and `steps` steps of projected
// gradient descent.
//   kept  [row, kept entry] exp(logit - row's largest)
//   mass  [row], the sum over all entries
// Both the same in all calls. The smallest piece has 2 rows * entries.
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
  std::vector<double> vector_;  // [kept entry], of the largest singular value
  double square_ = 0;           // that value's square
  int n_done_ = 0;              // iterations, then steps
};

}  // namespace winnow::compression::methods
