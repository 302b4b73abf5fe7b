#include "kernels/reference/compression.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "base/check.h"

namespace winnow::kernels::reference {
namespace {

std::span<std::byte> Row(const HeadRows& head, int32_t row, std::byte* (*bytes)(Storage*)) {
  const int64_t row_bytes = gguf::RowBytes(head.type, head.dim);
  WINNOW_CHECK(row >= 0 && head.offset_bytes + (row + 1) * row_bytes <= head.storage->size_bytes());
  return {bytes(head.storage) + head.offset_bytes + row * row_bytes,
          static_cast<size_t>(row_bytes)};
}

// Some rows as floats, and their Euclidean lengths.
struct Vectors {
  int dim = 0;
  std::vector<float> values;
  std::vector<double> lengths;

  Vectors(const HeadRows& head, std::span<const int32_t> rows, std::byte* (*bytes)(Storage*))
      : dim(head.dim), values(rows.size() * static_cast<size_t>(head.dim)), lengths(rows.size()) {
    ReadRows(head, rows, values, bytes);
    for (size_t i = 0; i < rows.size(); ++i) lengths[i] = std::sqrt(Dot(i, *this, i));
  }

  double Dot(size_t i, const Vectors& other, size_t j) const {
    const auto n = static_cast<size_t>(dim);
    double sum = 0;
    for (size_t k = 0; k < n; ++k) {
      sum += static_cast<double>(values[i * n + k]) * other.values[j * n + k];
    }
    return sum;
  }
  double Cosine(size_t i, const Vectors& other, size_t j) const {
    const double lengths_product = lengths[i] * other.lengths[j];
    return lengths_product == 0 ? 0 : Dot(i, other, j) / lengths_product;
  }
};

}  // namespace

void ReadRows(const HeadRows& head, std::span<const int32_t> rows, std::span<float> out,
              std::byte* (*bytes)(Storage*)) {
  const auto dim = static_cast<size_t>(head.dim);
  WINNOW_CHECK(out.size() == rows.size() * dim);
  for (size_t i = 0; i < rows.size(); ++i) {
    Dequantize(head.type, Row(head, rows[i], bytes), out.subspan(i * dim, dim));
  }
}

void SumRows(const HeadRows& head, std::span<const RowSum> sums, std::byte* (*bytes)(Storage*)) {
  const auto dim = static_cast<size_t>(head.dim);
  std::vector<float> results(sums.size() * dim);
  std::vector<float> row(dim);
  for (size_t i = 0; i < sums.size(); ++i) {
    const RowSum& sum = sums[i];
    WINNOW_CHECK(sum.rows.size() == sum.weights.size());
    std::vector<double> total(dim);
    for (size_t j = 0; j < sum.rows.size(); ++j) {
      ReadRows(head, sum.rows.subspan(j, 1), row, bytes);
      for (size_t k = 0; k < dim; ++k) total[k] += static_cast<double>(sum.weights[j]) * row[k];
    }
    for (size_t k = 0; k < dim; ++k) results[i * dim + k] = static_cast<float>(total[k]);
  }
  for (size_t i = 0; i < sums.size(); ++i) {
    Quantize(head.type, std::span(results).subspan(i * dim, dim), Row(head, sums[i].into, bytes));
  }
}

void MostSimilar(const Similarity& s, std::byte* (*bytes)(Storage*)) {
  WINNOW_CHECK(!s.to.empty());
  WINNOW_CHECK(s.best.size() == s.from.size() && s.best_to.size() == s.from.size());
  using Measure = Similarity::Measure;
  const bool keys = s.measure != Measure::kValues;
  const bool values = s.measure != Measure::kKeys;
  const auto vectors = [&](bool wanted, const HeadRows& head, std::span<const int32_t> rows) {
    return Vectors(head, wanted ? rows : std::span<const int32_t>(), bytes);
  };
  const Vectors from_keys = vectors(keys, s.keys, s.from);
  const Vectors to_keys = vectors(keys, s.keys, s.to);
  const Vectors from_values = vectors(values, s.values, s.from);
  const Vectors to_values = vectors(values, s.values, s.to);
  for (size_t i = 0; i < s.from.size(); ++i) {
    double best = -std::numeric_limits<double>::infinity();
    for (size_t j = 0; j < s.to.size(); ++j) {
      double cosine = 1;
      if (keys) cosine *= from_keys.Cosine(i, to_keys, j);
      if (values) cosine *= from_values.Cosine(i, to_values, j);
      const auto rank = [&](size_t to) { return s.ranks[static_cast<size_t>(s.to[to])]; };
      const bool lower_rank =
          !s.ranks.empty() && cosine == best && rank(j) < rank(static_cast<size_t>(s.best_to[i]));
      if (cosine <= best && !lower_rank) continue;
      best = cosine;
      s.best_to[i] = static_cast<int32_t>(j);
    }
    if (static_cast<float>(best) < s.min_similarity) {  // compare the float that is returned
      best = -std::numeric_limits<double>::infinity();
      s.best_to[i] = Similarity::kNone;
    }
    s.best[i] = static_cast<float>(best);
  }
}

void CosinesToMean(const MeanCosines& comparison, std::byte* (*bytes)(Storage*)) {
  WINNOW_CHECK(comparison.cosines.size() == comparison.rows.size());
  const Vectors rows(comparison.head, comparison.rows, bytes);
  const auto dim = static_cast<size_t>(rows.dim);
  std::vector<double> sum(dim);
  for (size_t i = 0; i < comparison.rows.size(); ++i) {
    if (rows.lengths[i] == 0) continue;
    for (size_t k = 0; k < dim; ++k) sum[k] += rows.values[i * dim + k] / rows.lengths[i];
  }
  double square = 0;
  for (const double x : sum) square += x * x;
  for (size_t i = 0; i < comparison.rows.size(); ++i) {
    double dot = 0;
    for (size_t k = 0; k < dim; ++k) dot += sum[k] * rows.values[i * dim + k];
    const double lengths = std::sqrt(square) * rows.lengths[i];
    comparison.cosines[i] = lengths == 0 ? 0 : dot / lengths;
  }
}

AttentionTotals AddAttention(const AttentionSums& sums, std::span<const float> weights) {
  AttentionTotals totals;
  for (size_t i = 0; i < weights.size(); ++i) {
    sums.total[i] += weights[i];
    sums.current[i] = sums.current[i] + weights[i];
    totals.total += sums.total[i];
    totals.window += sums.past[i] + sums.current[i];
  }
  return totals;
}

void ScoreAttention(const AttentionSums& sums, double total_factor, double window_factor,
                    std::span<float> scores) {
  for (size_t i = 0; i < scores.size(); ++i) {
    const double window = double{sums.past[i]} + sums.current[i];
    const double total = total_factor * sums.total[i];
    const double of_queries = window_factor * window;
    scores[i] =
        static_cast<float>(std::max(total > 0 ? total : 0, of_queries > 0 ? of_queries : 0));
  }
}

}  // namespace winnow::kernels::reference
