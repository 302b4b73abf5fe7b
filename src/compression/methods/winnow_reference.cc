#include "compression/methods/winnow_reference.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "compression/numbers.h"

namespace winnow::compression::methods {
namespace {

using kernels::Backend;

// scale * q . k + bias of the queries of n rows for all entries: out [query, entries.n].
void Scores(const Backend& backend, const ReferenceRows& rows, int64_t first, int64_t n,
            const HeadEntriesOnHost& entries, std::span<float> out) {
  const int64_t n_queries = n * rows.group;
  const auto size = static_cast<size_t>(n_queries * rows.key_dim);
  const std::span<const float> from =
      std::span(rows.queries).subspan(static_cast<size_t>(first * rows.group * rows.key_dim), size);
  std::vector<float> scaled(from.begin(), from.end());
  for (float& x : scaled) x *= rows.scale;
  for (size_t at = 0; at < out.size(); at += entries.biases.size()) {
    std::ranges::copy(entries.biases, out.begin() + static_cast<ptrdiff_t>(at));
  }
  backend.Multiply({.a = {scaled.data(), n_queries, rows.key_dim, rows.key_dim},
                    .b = {entries.keys.data(), rows.key_dim, entries.n, entries.n},
                    .out = {out.data(), n_queries, entries.n, entries.n},
                    .accumulate = true});
}

}  // namespace

void ReferenceRows::KeepLast(int64_t n_rows) {
  const int64_t n = size() - n_rows;
  if (n <= 0) return;
  const auto drop = [n](auto& column, int64_t width) {
    column.erase(column.begin(), column.begin() + n * width);
  };
  drop(queries, int64_t{group} * key_dim);
  drop(weights, 1);
  drop(n_visible, 1);
  drop(max, group);
  drop(own_sum, group);
  drop(own_output, int64_t{group} * value_dim);
}

HeadEntriesOnHost HeadEntriesOnHost::InOrder(std::span<const int32_t> order) const {
  HeadEntriesOnHost to = {.n = std::ssize(order),
                          .key_dim = key_dim,
                          .value_dim = value_dim,
                          .keys = {},
                          .values = {},
                          .biases = {},
                          .ranks = {order.begin(), order.end()}};
  to.keys.reserve(order.size() * static_cast<size_t>(key_dim));
  for (int64_t d = 0; d < key_dim; ++d) {
    for (const int32_t rank : order) to.keys.push_back(keys[static_cast<size_t>(d * n + rank)]);
  }
  to.values.reserve(order.size() * static_cast<size_t>(value_dim));
  for (const int32_t rank : order) {
    const auto row = values.begin() + int64_t{rank} * value_dim;
    to.values.insert(to.values.end(), row, row + value_dim);
    to.biases.push_back(biases[static_cast<size_t>(rank)]);
  }
  return to;
}

std::vector<float> Transposed(std::span<const float> from, size_t rows, size_t cols) {
  // Few rows at a time, so that the source stays in the L1 cache.
  constexpr size_t kAtOnce = 32;
  std::vector<float> to(from.size());
  for (size_t first = 0; first < rows; first += kAtOnce) {
    const size_t end = std::min(rows, first + kAtOnce);
    for (size_t col = 0; col < cols; ++col) {
      for (size_t row = first; row < end; ++row) to[col * rows + row] = from[row * cols + col];
    }
  }
  return to;
}

void AddRows(const NewRows& added, int64_t first_own, ReferenceRows& rows) {
  rows.queries.insert(rows.queries.end(), added.queries.begin(), added.queries.end());
  for (const double norm : added.norms) {
    // Recordings have no norms: all rows then have the same weight.
    rows.weights.push_back(norm > 0 && std::isfinite(norm) ? 1 / (norm * norm) : 1);
  }
  for (const int64_t n : added.n_visible) rows.n_visible.push_back(std::min(n, first_own));
  const auto n_queries = static_cast<size_t>(rows.n_queries());
  rows.max.resize(n_queries);
  rows.own_sum.resize(n_queries);
  rows.own_output.resize(n_queries * static_cast<size_t>(rows.value_dim));
}

void FillOwn(const Backend& backend, int64_t first, std::span<const int64_t> n_visible,
             int64_t first_own, const HeadEntriesOnHost& entries, ReferenceRows& rows) {
  const int64_t n_own = entries.n - first_own;
  std::vector<float> scores;
  for (int64_t at = 0; at < std::ssize(n_visible); at += kRowsAtOnce) {
    const int64_t n = std::min(kRowsAtOnce, std::ssize(n_visible) - at);
    const size_t query = rows.At(first + at, 0);
    scores.resize(static_cast<size_t>(n * rows.group * entries.n));
    Scores(backend, rows, first + at, n, entries, scores);
    for (int64_t i = 0; i < n * rows.group; ++i) {
      const int64_t n_seen = n_visible[static_cast<size_t>(at + i / rows.group)];
      const auto of_query = std::span(scores).subspan(static_cast<size_t>(i * entries.n),
                                                      static_cast<size_t>(entries.n));
      const float max = Largest(of_query.first(static_cast<size_t>(n_seen)));
      const std::span<float> own = of_query.subspan(static_cast<size_t>(first_own));
      const auto n_own_seen = static_cast<size_t>(std::max<int64_t>(0, n_seen - first_own));
      backend.ExpMinusMax(own.first(n_own_seen), max);
      std::ranges::fill(own.subspan(n_own_seen), 0.0f);
      float sum = 0;
      for (const float mass : own.first(n_own_seen)) sum += mass;
      rows.max[query + static_cast<size_t>(i)] = max;
      rows.own_sum[query + static_cast<size_t>(i)] = sum;
    }
    float* out = rows.own_output.data() + query * static_cast<size_t>(rows.value_dim);
    backend.Multiply({.a = {scores.data() + first_own, n * rows.group, n_own, entries.n},
                      .b = {entries.values.data() + first_own * rows.value_dim, n_own,
                            rows.value_dim, rows.value_dim},
                      .out = {out, n * rows.group, rows.value_dim, rows.value_dim}});
  }
}

void IncludeInMax(const Backend& backend, const HeadEntriesOnHost& entries, ReferenceRows& rows) {
  const auto n = static_cast<size_t>(entries.n);
  const auto dim = static_cast<size_t>(rows.value_dim);
  std::vector<float> scores;
  for (int64_t first = 0; first < rows.size(); first += kRowsAtOnce) {
    const int64_t n_rows = std::min(kRowsAtOnce, rows.size() - first);
    scores.resize(static_cast<size_t>(n_rows * rows.group) * n);
    Scores(backend, rows, first, n_rows, entries, scores);
    for (size_t i = 0; i < static_cast<size_t>(n_rows * rows.group); ++i) {
      const int64_t row = first + static_cast<int64_t>(i) / rows.group;
      const auto n_seen = static_cast<size_t>(rows.n_visible[static_cast<size_t>(row)]);
      if (n_seen == 0) continue;
      const float largest = Largest(std::span(scores).subspan(i * n, n_seen));
      const size_t query = rows.At(first, 0) + i;
      if (!(largest > rows.max[query])) continue;
      const float factor = std::exp(rows.max[query] - largest);
      rows.max[query] = largest;
      rows.own_sum[query] *= factor;
      for (size_t d = 0; d < dim; ++d) rows.own_output[query * dim + d] *= factor;
    }
  }
}

void Masses(const Backend& backend, const ReferenceRows& rows, int64_t first,
            std::span<const int64_t> n_visible, const HeadEntriesOnHost& entries,
            std::span<float> out) {
  const auto n = static_cast<size_t>(entries.n);
  Scores(backend, rows, first, std::ssize(n_visible), entries, out);
  for (size_t at = 0; at < n_visible.size() * static_cast<size_t>(rows.group); ++at) {
    const int64_t n_seen = n_visible[at / static_cast<size_t>(rows.group)];
    const std::span<float> of_query = out.subspan(at * n, n);
    backend.ExpMinusMax(of_query, rows.max[rows.At(first, 0) + at]);
    if (n_seen >= entries.n) continue;
    for (size_t i = 0; i < n; ++i) {
      const int64_t rank = entries.ranks.empty() ? static_cast<int64_t>(i) : entries.ranks[i];
      if (rank >= n_seen) of_query[i] = 0;
    }
  }
}

Targets MakeTargets(const Backend& backend, const ReferenceRows& rows,
                    const HeadEntriesOnHost& entries, std::vector<float>* largest) {
  const auto n = static_cast<size_t>(entries.n);
  const auto dim = static_cast<size_t>(rows.value_dim);
  Targets targets;
  targets.weights.resize(n);
  if (largest != nullptr) largest->assign(n, 0);
  targets.outputs = rows.own_output;
  targets.masses = rows.own_sum;
  std::vector<float> masses;
  for (int64_t first = 0; first < rows.size(); first += kRowsAtOnce) {
    const int64_t n_rows = std::min(kRowsAtOnce, rows.size() - first);
    const int64_t n_queries = n_rows * rows.group;
    masses.resize(static_cast<size_t>(n_queries) * n);
    Masses(
        backend, rows, first,
        std::span(rows.n_visible).subspan(static_cast<size_t>(first), static_cast<size_t>(n_rows)),
        entries, masses);
    const size_t query = rows.At(first, 0);
    backend.Multiply(
        {.a = {masses.data(), n_queries, entries.n, entries.n},
         .b = {entries.values.data(), entries.n, rows.value_dim, rows.value_dim},
         .out = {targets.outputs.data() + query * dim, n_queries, rows.value_dim, rows.value_dim},
         .accumulate = true});
    for (size_t i = 0; i < static_cast<size_t>(n_queries); ++i) {
      const std::span<const float> of_query = std::span(masses).subspan(i * n, n);
      double mass = targets.masses[query + i];
      for (const float x : of_query) mass += x;
      const double inverse = mass > 0 ? 1 / mass : 0;
      const auto factor = static_cast<float>(inverse);
      for (size_t entry = 0; entry < n; ++entry) {
        targets.weights[entry] += of_query[entry] * inverse;
      }
      for (size_t entry = 0; largest != nullptr && entry < n; ++entry) {
        (*largest)[entry] = std::max((*largest)[entry], of_query[entry] * factor);
      }
      targets.masses[query + i] = static_cast<float>(mass);
      for (size_t d = 0; d < dim; ++d) targets.outputs[(query + i) * dim + d] *= factor;
    }
  }
  return targets;
}

}  // namespace winnow::compression::methods
