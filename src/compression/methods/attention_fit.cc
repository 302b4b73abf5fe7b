#include "compression/methods/attention_fit.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

#include "compression/methods/attention_numbers.h"

namespace winnow::compression::methods {

using kernels::Backend;

namespace {

// Adds the sum over `rows` of row^T row to the upper triangle of `square`, tile by tile.
void AddSquare(Backend& backend, const Numbers& from, Rows rows, Numbers& square) {
  constexpr size_t kTileRows = 32, kTileCols = 256, kRowsAtOnce = 8;
  const size_t n = square.cols, n_across = (n + kTileCols - 1) / kTileCols;
  ForEachPart(
      backend, 0, n_across * ((n + kTileRows - 1) / kTileRows), 1, [&](size_t tile, size_t) {
        const size_t first = tile / n_across * kTileRows, end = std::min(n, first + kTileRows);
        const size_t left = tile % n_across * kTileCols, right = std::min(n, left + kTileCols);
        for (size_t row = rows.begin; row < rows.end; row += kRowsAtOnce) {
          for (size_t i = first; i < std::min(end, right); ++i) {
            const size_t from_col = std::max(i, left);
            AddMultiples(square[i].subspan(from_col, right - from_col), from,
                         {row, std::min(rows.end, row + kRowsAtOnce)}, from_col,
                         [&](size_t r) { return from[r][i]; });
          }
        }
      });
}

void Regularise(Numbers& s) {
  const size_t n = s.rows();
  double trace = 0;
  for (size_t i = 0; i < n; ++i) trace += s[i][i];
  const double add = std::max(1e-9 * trace / static_cast<double>(n), 1e-300);
  for (size_t i = 0; i < n; ++i) s[i][i] += add;
}

constexpr size_t kColumns = 16;  // right-hand sides per task

// kept * x
std::vector<double> Multiply(Backend& backend, const Numbers& kept, std::span<const double> x) {
  constexpr size_t kRows = 8;  // independent sums, so that none waits for another
  std::vector<double> out(kept.rows());
  ForEachPart(backend, 0, out.size(), kRows, [&](size_t begin, size_t end) {
    std::array<double, kRows> sums = {};
    for (size_t i = 0; i < kept.cols; ++i) {
      for (size_t row = begin; row < end; ++row) sums[row - begin] += kept[row][i] * x[i];
    }
    std::copy_n(sums.begin(), end - begin, out.begin() + static_cast<ptrdiff_t>(begin));
  });
  return out;
}

// kept^T * v
std::vector<double> MultiplyBack(Backend& backend, const Numbers& kept, std::span<const double> v) {
  std::vector<double> out(kept.cols);
  ForEachPart(backend, 0, kept.cols, kPart, [&](size_t begin, size_t end) {
    AddMultiples(std::span(out).subspan(begin, end - begin), kept, {0, kept.rows()}, begin,
                 [&](size_t row) { return v[row]; });
  });
  return out;
}

}  // namespace

int64_t LeastSquares::Run(Backend& backend, const Numbers& a, const Numbers& b, int64_t max_work) {
  int64_t done = 0;
  while (stage_ != Stage::kDone && done < max_work) {
    const int64_t left = max_work - done;
    switch (stage_) {
      case Stage::kBegin:
        Begin(a, b);
        break;
      case Stage::kTranspose:
        done += Transpose(backend, a, left);
        break;
      case Stage::kSquare:
        done += Square(backend, a, b, left);
        break;
      case Stage::kFactor:
        done += Factor(backend, left);
        break;
      case Stage::kForward:
        done += Forward(backend, left);
        break;
      case Stage::kBack:
        done += Back(backend, left);
        break;
      case Stage::kCombine:
        done += Combine(backend, left);
        break;
      case Stage::kDone:
        break;
    }
  }
  return done;
}

void LeastSquares::Begin(const Numbers& a, const Numbers& b) {
  const size_t n = a.rows(), k = a.cols;
  wide_ = n < k;
  if (wide_) {
    transposed_ = Numbers(k, n);
    square_ = Numbers(n, n);
    y_ = b;
  } else {
    square_ = Numbers(k, k);
    y_ = Numbers(k, b.cols);
  }
  Enter(wide_ ? Stage::kTranspose : Stage::kSquare);
}

int64_t LeastSquares::Transpose(Backend& backend, const Numbers& a, int64_t max_work) {
  constexpr size_t kWork = 4;  // per element: each write goes to a distant cache line
  const size_t count = CountWithin(max_work, a.cols * kWork, a.rows() - next_);
  ForEachPart(backend, 0, a.cols, kPart, [&](size_t begin, size_t end) {
    for (size_t col = begin; col < end; ++col) {
      for (size_t row = next_; row < next_ + count; ++row) transposed_[col][row] = a[row][col];
    }
  });
  next_ += count;
  if (next_ == a.rows()) Enter(Stage::kSquare);
  return static_cast<int64_t>(count * a.cols * kWork);
}

int64_t LeastSquares::Square(Backend& backend, const Numbers& a, const Numbers& b,
                             int64_t max_work) {
  const Numbers& from = wide_ ? transposed_ : a;
  const size_t n = square_.cols, work = n * n / 2 + (wide_ ? 0 : n * b.cols);
  const size_t end = next_ + CountWithin(max_work, work, from.rows() - next_);
  AddSquare(backend, from, {next_, end}, square_);
  if (!wide_) {
    ForEachPart(backend, 0, n, 16, [&](size_t begin, size_t stop) {
      for (size_t i = begin; i < stop; ++i) {
        AddMultiples(y_[i], b, {next_, end}, 0, [&](size_t row) { return a[row][i]; });
      }
    });
  }
  const auto done = static_cast<int64_t>((end - next_) * work);
  next_ = end;
  if (next_ == from.rows()) {
    Regularise(square_);
    Enter(Stage::kFactor);
  }
  return done;
}

// Right-looking blocked Cholesky: factors a panel of rows, then subtracts its products from all
// rows below.
int64_t LeastSquares::Factor(Backend& backend, int64_t max_work) {
  constexpr size_t kPanel = 32;
  const size_t n = square_.cols, end = std::min(n, next_ + kPanel);
  const auto subtract = [&](size_t i, Rows rows) {
    AddMultiples(square_[i].subspan(i), square_, rows, i,
                 [&](size_t row) { return -square_[row][i]; });
  };
  if (trailing_ == 0) {
    for (size_t i = next_; i < end; ++i) {
      subtract(i, {next_, i});
      const std::span<double> row = square_[i].subspan(i);
      const double pivot = std::sqrt(std::max(row[0], 1e-300));
      for (double& x : row) x /= pivot;
      row[0] = pivot;
    }
    trailing_ = end;
    if (end == n) Enter(Stage::kForward);
    return static_cast<int64_t>(kPanel * kPanel / 2 * n);
  }
  const size_t work = kPanel * (n - trailing_);
  const size_t stop = trailing_ + CountWithin(max_work, work, n - trailing_);
  ForEachPart(backend, trailing_, stop, 8, [&](size_t begin, size_t part_end) {
    for (size_t i = begin; i < part_end; ++i) subtract(i, {next_, end});
  });
  const auto done = static_cast<int64_t>((stop - trailing_) * work);
  trailing_ = stop;
  if (trailing_ == n) {
    next_ = end;
    trailing_ = 0;
  }
  return done;
}

// Solves U^T z = y in place. The columns of y are independent.
int64_t LeastSquares::Forward(Backend& backend, int64_t max_work) {
  const size_t n = square_.cols, work = n * y_.cols;
  const size_t end = next_ + CountWithin(max_work, work, n - next_);
  ForEachPart(backend, 0, y_.cols, kColumns, [&](size_t begin, size_t stop) {
    for (size_t i = next_; i < end; ++i) {
      const std::span<double> row = y_[i].subspan(begin, stop - begin);
      AddMultiples(row, y_, {0, i}, begin, [&](size_t k) { return -square_[k][i]; });
      for (double& x : row) x /= square_[i][i];
    }
  });
  const auto done = static_cast<int64_t>((end - next_) * work);
  next_ = end;
  if (next_ == n) Enter(Stage::kBack);
  return done;
}

// Solves U x = z in place, from the last row to the first.
int64_t LeastSquares::Back(Backend& backend, int64_t max_work) {
  const size_t n = square_.cols, work = n * y_.cols;
  const size_t end = next_ + CountWithin(max_work, work, n - next_);
  ForEachPart(backend, 0, y_.cols, kColumns, [&](size_t begin, size_t stop) {
    for (size_t i = n - next_; i-- > n - end;) {
      const std::span<double> row = y_[i].subspan(begin, stop - begin);
      AddMultiples(row, y_, {i + 1, n}, begin, [&](size_t k) { return -square_[i][k]; });
      for (double& x : row) x /= square_[i][i];
    }
  });
  const auto done = static_cast<int64_t>((end - next_) * work);
  next_ = end;
  if (next_ < n) return done;
  square_ = {};
  if (wide_) {
    x_ = Numbers(transposed_.rows(), y_.cols);
    Enter(Stage::kCombine);
  } else {
    x_ = std::move(y_);
    Enter(Stage::kDone);
  }
  return done;
}

// With fewer rows than columns: the smallest solution is A^T times the solution of A A^T y = B.
int64_t LeastSquares::Combine(Backend& backend, int64_t max_work) {
  const size_t work = y_.rows() * y_.cols;
  const size_t end = next_ + CountWithin(max_work, work, x_.rows() - next_);
  ForEachPart(backend, next_, end, 16, [&](size_t begin, size_t stop) {
    for (size_t i = begin; i < stop; ++i) {
      AddMultiples(x_[i], y_, {0, y_.rows()}, 0, [&](size_t row) { return transposed_[i][row]; });
    }
  });
  const auto done = static_cast<int64_t>((end - next_) * work);
  next_ = end;
  if (next_ == x_.rows()) {
    transposed_ = {};
    y_ = {};
    Enter(Stage::kDone);
  }
  return done;
}

int64_t FactorFit::Run(Backend& backend, const Numbers& kept, std::span<const double> mass,
                       int64_t max_work) {
  const auto product = static_cast<int64_t>(kept.values.size());
  int64_t done = 0;
  while (stage_ != Stage::kDone && done < max_work) {
    switch (stage_) {
      case Stage::kBegin:
        target_ = Numbers(kept.rows(), 1);
        std::ranges::copy(mass, target_.values.begin());
        stage_ = Stage::kSolve;
        break;
      case Stage::kSolve:
        done += solve_.Run(backend, kept, target_, max_work - done);
        if (solve_.done()) BeginPower();
        break;
      case Stage::kPower:
        Power(backend, kept);
        done += 2 * product;
        break;
      case Stage::kDescend:
        Descend(backend, kept, mass);
        done += 2 * product;
        break;
      case Stage::kDone:
        break;
    }
  }
  return done;
}

void FactorFit::BeginPower() {
  factors_ = std::move(solve_.solution().values);
  for (double& x : factors_) x = std::clamp(x, low_, high_);
  // The largest singular value, by power iteration from a vector of ones.
  const size_t k = factors_.size();
  vector_.assign(k, 1 / std::sqrt(static_cast<double>(std::max<size_t>(k, 1))));
  stage_ = Stage::kPower;
}

void FactorFit::Power(Backend& backend, const Numbers& kept) {
  constexpr int kIterations = 20;
  vector_ = MultiplyBack(backend, kept, Multiply(backend, kept, vector_));
  square_ = 0;
  for (const double x : vector_) square_ += x * x;
  square_ = std::sqrt(square_);
  if (!(square_ > 0)) {
    stage_ = Stage::kDone;
    return;
  }
  for (double& x : vector_) x /= square_;
  if (++n_done_ < kIterations) return;
  n_done_ = 0;
  stage_ = n_steps_ > 0 ? Stage::kDescend : Stage::kDone;
}

void FactorFit::Descend(Backend& backend, const Numbers& kept, std::span<const double> mass) {
  std::vector<double> error = Multiply(backend, kept, factors_);
  for (size_t row = 0; row < error.size(); ++row) error[row] -= mass[row];
  const std::vector<double> slope = MultiplyBack(backend, kept, error);
  for (size_t i = 0; i < factors_.size(); ++i) {
    factors_[i] = std::clamp(factors_[i] - slope[i] / square_, low_, high_);
  }
  if (++n_done_ == n_steps_) stage_ = Stage::kDone;
}

}  // namespace winnow::compression::methods
