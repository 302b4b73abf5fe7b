#include "eval/probes/measures.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <numeric>

namespace winnow::eval {
namespace {

// Rows scaled to length 1; rows of zeros stay zero.
std::vector<double> Directions(const Rows& rows) {
  std::vector<double> directions(rows.data.begin(), rows.data.end());
  for (auto row = directions.begin(); row != directions.end(); row += rows.dim) {
    const double length = std::sqrt(std::inner_product(row, row + rows.dim, row, 0.0));
    if (length == 0) continue;
    for (auto value = row; value != row + rows.dim; ++value) *value /= length;
  }
  return directions;
}

double Product(std::span<const double> directions, int64_t dim, int64_t a, int64_t b) {
  const auto first = directions.begin() + a * dim;
  return std::inner_product(first, first + dim, directions.begin() + b * dim, 0.0);
}

}  // namespace

double Entropy(std::span<const double> counts) {
  const double total = std::accumulate(counts.begin(), counts.end(), 0.0);
  double entropy = 0;
  for (const double count : counts) {
    if (count > 0) entropy -= count / total * std::log(count / total);
  }
  return entropy;
}

double SparsityRate(std::span<const double> scores, double share) {
  std::vector<double> sorted(scores.begin(), scores.end());
  std::sort(sorted.begin(), sorted.end(), std::greater<>());
  const double wanted = share * std::accumulate(sorted.begin(), sorted.end(), 0.0);
  double sum = 0;
  size_t k = 0;
  while (k < sorted.size() && (k == 0 || sum < wanted)) sum += sorted[k++];
  return 1 - static_cast<double>(k) / static_cast<double>(sorted.size());
}

std::vector<double> LargestSimilarity(const Rows& keys, const Rows& values) {
  const auto n = static_cast<int64_t>(keys.data.size()) / keys.dim;
  const std::vector<double> k = Directions(keys);
  const std::vector<double> v = Directions(values);
  std::vector<double> largest(static_cast<size_t>(n), -1);
  for (int64_t i = 1; i < n; ++i) {
    double& best = largest[static_cast<size_t>(i)];
    for (int64_t j = 0; j < i; ++j) {
      best = std::max(best, Product(k, keys.dim, i, j) * Product(v, values.dim, i, j));
    }
  }
  return largest;
}

std::vector<double> Cosines(const Rows& rows) {
  const auto n = static_cast<int64_t>(rows.data.size()) / rows.dim;
  const std::vector<double> directions = Directions(rows);
  std::vector<double> cosines;
  cosines.reserve(static_cast<size_t>(n * (n - 1) / 2));
  for (int64_t i = 1; i < n; ++i) {
    for (int64_t j = 0; j < i; ++j) cosines.push_back(Product(directions, rows.dim, i, j));
  }
  return cosines;
}

double Variance(std::span<const double> values) {
  if (values.size() < 2) return 0;
  const auto n = static_cast<double>(values.size());
  const double mean = std::accumulate(values.begin(), values.end(), 0.0) / n;
  double sum = 0;
  for (const double value : values) sum += (value - mean) * (value - mean);
  return sum / (n - 1);
}

std::vector<double> Counts(std::span<const double> values, double from, double to, int n_bins) {
  std::vector<double> counts(static_cast<size_t>(n_bins), 0);
  for (const double value : values) {
    const double place = (value - from) / (to - from) * n_bins;
    ++counts[static_cast<size_t>(std::clamp(place, 0.0, n_bins - 1.0))];
  }
  return counts;
}

}  // namespace winnow::eval
