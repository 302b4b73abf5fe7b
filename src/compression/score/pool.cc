#include "compression/score/pool.h"

#include <algorithm>
#include <string>

#include "base/check.h"
#include "compression/numbers.h"

namespace winnow::compression::score {

namespace {

// Counts zeros beyond the ends.
double MeanNear(std::span<const double> x, int64_t i, int kernel) {
  const int64_t reach = kernel / 2;
  const int64_t last = std::min(std::ssize(x) - 1, i + reach);
  double sum = 0;
  for (int64_t j = std::max<int64_t>(0, i - reach); j <= last; ++j) {
    sum += x[static_cast<size_t>(j)];
  }
  return sum / kernel;
}

}  // namespace

void Smooth(Pool pool, int kernel, std::vector<double>& copy, std::span<double> x) {
  WINNOW_CHECK(kernel >= 1 && kernel % 2 == 1);
  if (pool == Pool::kNone || kernel == 1) return;
  copy.assign(x.begin(), x.end());
  const auto near = pool == Pool::kMax ? MaxNear : MeanNear;
  for (int64_t i = 0; i < std::ssize(x); ++i) {
    x[static_cast<size_t>(i)] = near(copy, i, kernel);
  }
}

double MaxNear(std::span<const double> x, int64_t i, int kernel) {
  const int64_t reach = kernel / 2;
  const int64_t last = std::min(std::ssize(x) - 1, i + reach);
  double max = x[static_cast<size_t>(i)];
  for (int64_t j = std::max<int64_t>(0, i - reach); j <= last; ++j) {
    max = std::max(max, x[static_cast<size_t>(j)], ScoreLess);
  }
  return max;
}

Result<void> CheckPoolWidth(std::string_view context, int kernel) {
  if (kernel % 2 == 1) return {};
  return Error{std::string(context) + ": kernel: found '" + std::to_string(kernel) +
               "', expected an odd integer from 1 to " + std::to_string(kMaxKernel)};
}

kernels::TapSpec::Reduce TapReduceFrom(Reduce reduce) {
  switch (reduce) {
    case Reduce::kMax:
      return kernels::TapSpec::Reduce::kMax;
    case Reduce::kSum:
      return kernels::TapSpec::Reduce::kSum;
    case Reduce::kMean:
      break;
  }
  return kernels::TapSpec::Reduce::kMean;
}

}  // namespace winnow::compression::score
