#include "compression/score/pool.h"

#include <algorithm>
#include <string>

#include "base/check.h"
#include "compression/numbers.h"

namespace winnow::compression::score {

void Smooth(Pool pool, int kernel, std::vector<double>& copy, std::span<double> x) {
  WINNOW_CHECK(kernel >= 1 && kernel % 2 == 1);
  if (pool == Pool::kNone || kernel == 1) return;
  copy.assign(x.begin(), x.end());
  const auto n = static_cast<int64_t>(x.size());
  const int64_t reach = kernel / 2;
  for (int64_t i = 0; i < n; ++i) {
    const int64_t first = std::max<int64_t>(0, i - reach);
    const int64_t last = std::min(n - 1, i + reach);
    double sum = 0;
    double max = copy[static_cast<size_t>(i)];
    for (int64_t j = first; j <= last; ++j) {
      sum += copy[static_cast<size_t>(j)];
      max = std::max(max, copy[static_cast<size_t>(j)], ScoreLess);
    }
    x[static_cast<size_t>(i)] = pool == Pool::kMax ? max : sum / kernel;
  }
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
