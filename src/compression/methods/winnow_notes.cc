#include "compression/methods/winnow_notes.h"

#include <algorithm>
#include <span>

namespace winnow::compression::methods {

HeadEntriesOnHost ReadEntries(const LayerCall& call, int head, int bias_column) {
  const cache::Cache& cache = call.cache;
  const std::span<const Slot> order = call.order(head);
  HeadEntriesOnHost entries;
  entries.n = std::ssize(order);
  entries.key_dim = cache.config().shape.key_dim;
  entries.value_dim = cache.config().shape.value_dim;
  const auto n = order.size();
  std::vector<float> rows(n * static_cast<size_t>(entries.key_dim));
  call.backend.ReadRows(cache.keys(call.layer, head), order, rows);
  entries.keys.resize(rows.size());
  for (size_t rank = 0; rank < n; ++rank) {
    for (size_t i = 0; i < static_cast<size_t>(entries.key_dim); ++i) {
      entries.keys[i * n + rank] = rows[rank * static_cast<size_t>(entries.key_dim) + i];
    }
  }
  entries.values.resize(n * static_cast<size_t>(entries.value_dim));
  call.backend.ReadRows(cache.values(call.layer, head), order, entries.values);
  entries.biases.resize(n);
  if (bias_column >= 0) {
    const std::span<const Half> biases = call.half_column(head, bias_column);
    for (size_t rank = 0; rank < n; ++rank) {
      entries.biases[rank] = biases[static_cast<size_t>(order[rank])];
    }
  }
  return entries;
}

void Observe(const LayerCall& call, int head, int64_t first, int64_t first_own,
             const HeadEntriesOnHost& entries, HeadNotes& notes) {
  ReferenceRows& rows = notes.rows;
  rows.group = call.group();
  rows.key_dim = entries.key_dim;
  rows.value_dim = entries.value_dim;
  rows.scale = call.scale;
  const auto width = static_cast<size_t>(call.group() * entries.key_dim);
  const size_t stride = width * static_cast<size_t>(call.n_kv_heads());
  for (int64_t i = first; i < call.rows->size(); ++i) {
    const auto at = static_cast<size_t>(i);
    const int64_t n_visible = entries.n - call.n_new + call.rows->rows[at] + 1;
    AddRow(rows,
           std::span(call.rows->queries)
               .subspan(at * stride + static_cast<size_t>(head) * width, width),
           call.rows->norms[at], n_visible, first_own, entries);
  }
}

void TakeLargest(const HeadEntriesOnHost& entries, HeadNotes& notes) {
  std::vector<float> masses(static_cast<size_t>(entries.n));
  for (int64_t row = 0; row < notes.rows.size(); ++row) {
    for (int head = 0; head < notes.rows.group; ++head) {
      Masses(notes.rows, row, head, entries, masses);
      double sum = notes.rows.own_sum[notes.rows.At(row, head)];
      for (const float mass : masses) sum += mass;
      for (size_t i = 0; i < masses.size() && sum > 0; ++i) {
        notes.scores[i] = std::max(notes.scores[i], static_cast<float>(masses[i] / sum));
      }
    }
  }
}

std::vector<std::vector<float>> Grams(const LayerCall& call, int head) {
  const auto dim = static_cast<size_t>(call.cache.config().shape.value_dim);
  std::vector<std::vector<float>> grams(static_cast<size_t>(call.group()));
  std::vector<float> weights;
  for (int i = 0; i < call.group(); ++i) {
    std::vector<float>& gram = grams[static_cast<size_t>(i)];
    gram.assign(dim * dim, 0.0f);
    if (call.projections == nullptr) {
      for (size_t d = 0; d < dim; ++d) gram[d * dim + d] = 1;
      continue;
    }
    const auto n = static_cast<size_t>(call.projections->model_dim());
    weights.resize(n * dim);
    call.projections->Read(call.layer, head * call.group() + i, weights);
    for (size_t row = 0; row < n; ++row) {
      const float* w = weights.data() + row * dim;
      for (size_t a = 0; a < dim; ++a) {
        for (size_t b = 0; b < dim; ++b) gram[a * dim + b] += w[a] * w[b];
      }
    }
  }
  return grams;
}

}  // namespace winnow::compression::methods
