#pragma once

#include <cstdint>
#include <span>
#include <vector>

// The measures of the papers, on plain numbers.
namespace winnow::eval {

// Entropy of counts taken as a distribution: -sum p ln p, in nats; 0 without counts.
double Entropy(std::span<const double> counts);

// 1 - k/n, where k is the smallest number of scores that reach `share` of the sum [EMS, Eq. 3].
// Requires: scores >= 0.
double SparsityRate(std::span<const double> scores, double share);

// For every entry but the first, the largest product of key cosine and value cosine with an earlier
// entry [EMS, Eq. 4 and 5; the paper's "1:k" cannot mean the entry itself]. By the formula, two
// negative cosines make a positive product. A row of zeros has cosine 0 with every other.
//   keys [n, key_dim], values [n, value_dim]; result [n], the first -1
struct Rows {
  std::span<const float> data;
  int64_t dim = 0;
};
std::vector<double> LargestSimilarity(const Rows& keys, const Rows& values);

// The cosines of all pairs of an entry and an earlier one: [n (n - 1) / 2].
std::vector<double> Cosines(const Rows& rows);

// Unbiased variance (n - 1); 0 for fewer than two values [D2O, Eq. 4].
double Variance(std::span<const double> values);

// Counts of values in n_bins equal parts of [from, to); values outside count in the nearest part.
std::vector<double> Counts(std::span<const double> values, double from, double to, int n_bins);

}  // namespace winnow::eval
