#include "compression/methods/winnow_reference.h"

#include <algorithm>
#include <cmath>
#include <limits>

namespace winnow::compression::methods {

void Scores(const ReferenceRows& rows, int64_t row, int head, const HeadEntriesOnHost& entries,
            std::span<float> out) {
  const std::span<const float> query = rows.query(row, head);
  const auto n = static_cast<size_t>(entries.n);
  std::fill(out.begin(), out.end(), 0.0f);
  for (size_t i = 0; i < query.size(); ++i) {
    const float q = query[i] * rows.scale;
    const float* keys = entries.keys.data() + i * n;
    for (size_t entry = 0; entry < n; ++entry) out[entry] += q * keys[entry];
  }
  for (size_t entry = 0; entry < n; ++entry) out[entry] += entries.biases[entry];
}

void AddRow(ReferenceRows& rows, std::span<const float> queries, double norm, int64_t n_visible,
            int64_t first_own, const HeadEntriesOnHost& entries) {
  const int64_t row = rows.size();
  rows.queries.insert(rows.queries.end(), queries.begin(), queries.end());
  // Recordings have no norms: all rows count the same then.
  rows.weights.push_back(norm > 0 && std::isfinite(norm) ? 1 / (norm * norm) : 1);
  rows.n_visible.push_back(std::min(n_visible, first_own));
  std::vector<float> scores(static_cast<size_t>(entries.n));
  for (int head = 0; head < rows.group; ++head) {
    Scores(rows, row, head, entries, scores);
    const float max = *std::max_element(scores.begin(), scores.begin() + n_visible);
    float sum = 0;
    std::vector<float> output(static_cast<size_t>(rows.value_dim));
    for (int64_t entry = first_own; entry < n_visible; ++entry) {
      const float mass = std::exp(scores[static_cast<size_t>(entry)] - max);
      sum += mass;
      const float* value = entries.values.data() + entry * entries.value_dim;
      for (size_t i = 0; i < output.size(); ++i) output[i] += mass * value[i];
    }
    rows.max.push_back(max);
    rows.own_sum.push_back(sum);
    rows.own_output.insert(rows.own_output.end(), output.begin(), output.end());
  }
}

void Masses(const ReferenceRows& rows, int64_t row, int head, const HeadEntriesOnHost& entries,
            std::span<float> out) {
  Scores(rows, row, head, entries, out);
  const float max = rows.max[rows.At(row, head)];
  const auto n = std::min(entries.n, rows.n_visible[static_cast<size_t>(row)]);
  for (int64_t entry = 0; entry < n; ++entry) {
    float& x = out[static_cast<size_t>(entry)];
    x = std::exp(std::min(x - max, 80.0f));
  }
  std::fill(out.begin() + n, out.end(), 0.0f);
}

Targets MakeTargets(const ReferenceRows& rows, const HeadEntriesOnHost& entries) {
  const auto n = static_cast<size_t>(entries.n);
  const auto dim = static_cast<size_t>(rows.value_dim);
  Targets targets;
  targets.weights.resize(n);
  std::vector<float> masses(n);
  std::vector<double> sum(dim);
  for (int64_t row = 0; row < rows.size(); ++row) {
    for (int head = 0; head < rows.group; ++head) {
      Masses(rows, row, head, entries, masses);
      double mass = rows.own_sum[rows.At(row, head)];
      const std::span<const float> own = rows.own(row, head);
      sum.assign(own.begin(), own.end());
      for (size_t entry = 0; entry < n; ++entry) {
        mass += masses[entry];
        const float* value = entries.values.data() + entry * dim;
        for (size_t i = 0; i < dim; ++i) sum[i] += double{masses[entry]} * value[i];
      }
      const double inverse = mass > 0 ? 1 / mass : 0;
      for (size_t entry = 0; entry < n; ++entry) {
        targets.weights[entry] += masses[entry] * inverse;
      }
      for (const double x : sum) targets.outputs.push_back(static_cast<float>(x * inverse));
      targets.masses.push_back(static_cast<float>(mass));
    }
  }
  return targets;
}

}  // namespace winnow::compression::methods
