#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "compression/budget/budget.h"
#include "compression/numbers.h"

namespace winnow::compression::budget {
namespace {

// A preference scaled to [0, 1] by the largest, so that no sum overflows. Infinite ones leave
// nothing to finite ones.
double Scaled(double preference, double largest) {
  if (std::isinf(largest)) return std::isinf(preference) && preference > 0 ? 1 : 0;
  return preference > 0 ? preference / largest : 0;
}

}  // namespace

void Share(std::span<const double> preferences, int64_t total, int64_t max,
           std::span<int64_t> out) {
  WINNOW_CHECK(!out.empty() && preferences.size() == out.size());
  WINNOW_CHECK(total >= 0 && max >= 0);
  double sum = 0;
  double largest = 0;
  for (const double preference : preferences) {
    if (!(preference > 0)) continue;
    sum += preference;
    largest = std::max(largest, preference);
  }
  const bool overflowed = !std::isfinite(sum);
  if (overflowed) {
    sum = 0;
    for (const double preference : preferences) sum += Scaled(preference, largest);
  }
  const double equal = 1.0 / static_cast<double>(out.size());
  for (size_t i = 0; i < out.size(); ++i) {
    const double part = overflowed ? Scaled(preferences[i], largest) : preferences[i];
    const double share = Fraction(part, sum, equal);
    out[i] = CountFrom(share * static_cast<double>(total), total);
  }
  // Move the excess above `max` to the others, which may then exceed it themselves.
  while (true) {
    int64_t excess = 0;
    int64_t n_open = 0;
    for (int64_t& size : out) {
      excess += std::max<int64_t>(0, size - max);
      size = std::min(size, max);
      n_open += size < max ? 1 : 0;
    }
    if (excess == 0 || n_open == 0) return;
    int64_t remainder = excess % n_open;
    for (int64_t& size : out) {
      if (size == max) continue;
      size += excess / n_open + (remainder > 0 ? 1 : 0);
      remainder = std::max<int64_t>(0, remainder - 1);
    }
  }
}

}  // namespace winnow::compression::budget
