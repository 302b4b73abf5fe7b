#include "base/statistics.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"

namespace winnow {

void MeanEstimate::Add(double value) {
  ++count_;
  const double delta = value - mean_;
  mean_ += delta / static_cast<double>(count_);
  squares_ += delta * (value - mean_);
}

double MeanEstimate::standard_error() const {
  if (count_ < 2) return 0;
  return std::sqrt(squares_ / static_cast<double>(count_) / static_cast<double>(count_ - 1));
}

double Perplexity(const MeanEstimate& nll) { return std::exp(nll.mean()); }
double PerplexityError(const MeanEstimate& nll) { return Perplexity(nll) * nll.standard_error(); }

double Percentile(std::span<const float> sorted, double share) {
  WINNOW_CHECK(!sorted.empty() && share >= 0 && share <= 1);
  const double place = share * static_cast<double>(sorted.size() - 1);
  const size_t below = static_cast<size_t>(place);
  const size_t above = std::min(below + 1, sorted.size() - 1);
  const double weight = place - static_cast<double>(below);
  if (weight == 0) return sorted[below];  // the other neighbour may be infinite
  return (1 - weight) * sorted[below] + weight * sorted[above];
}

}  // namespace winnow
