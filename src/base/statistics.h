#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace winnow {

// Mean of independent observations and the standard error of that mean.
class MeanEstimate {
 public:
  void Add(double value);
  int64_t count() const { return count_; }
  double mean() const { return mean_; }
  // sqrt(sum of squared deviations / count / (count - 1)), as llama-perplexity reports it; 0 below
  // two observations.
  double standard_error() const;

 private:
  int64_t count_ = 0;
  double mean_ = 0;
  double squares_ = 0;  // of deviations from the mean (Welford)
};

// Perplexity from a token's mean negative log-likelihood in nats.
double Perplexity(const MeanEstimate& nll);
double PerplexityError(const MeanEstimate& nll);  // its standard error

// The value below which a `share` (0..1) of the values lies, interpolated between neighbours.
// Requires: not empty, sorted.
double Percentile(std::span<const float> sorted, double share);

}  // namespace winnow
