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
  // Few entries at a time, so that what is read stays in the first cache.
  constexpr size_t kEntriesAtOnce = 32;
  const auto dim = static_cast<size_t>(entries.key_dim);
  for (size_t first = 0; first < n; first += kEntriesAtOnce) {
    const size_t end = std::min(n, first + kEntriesAtOnce);
    for (size_t i = 0; i < dim; ++i) {
      for (size_t rank = first; rank < end; ++rank) {
        entries.keys[i * n + rank] = rows[rank * dim + i];
      }
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

std::vector<HeadEntriesOnHost> ReadAllEntries(const LayerCall& call, int bias_column) {
  std::vector<HeadEntriesOnHost> entries;
  entries.reserve(static_cast<size_t>(call.n_kv_heads()));
  for (int head = 0; head < call.n_kv_heads(); ++head) {
    entries.push_back(ReadEntries(call, head, bias_column));
  }
  return entries;
}

void Observe(const LayerCall& call, int64_t first, int64_t n_own,
             std::span<const HeadEntriesOnHost> entries, std::span<HeadNotes> notes) {
  const attention::Rows& from = *call.rows;
  const int64_t n = from.size() - first;
  std::vector<std::vector<int64_t>> n_visible(notes.size());
  std::vector<float> queries;
  for (size_t head = 0; head < notes.size(); ++head) {
    ReferenceRows& rows = notes[head].rows;
    rows.group = call.group();
    rows.key_dim = entries[head].key_dim;
    rows.value_dim = entries[head].value_dim;
    rows.scale = call.scale;
    const auto width = static_cast<size_t>(call.group() * rows.key_dim);
    queries.clear();
    for (int64_t i = first; i < from.size(); ++i) {
      const auto at =
          from.queries.begin() +
          static_cast<ptrdiff_t>((static_cast<size_t>(i) * notes.size() + head) * width);
      queries.insert(queries.end(), at, at + static_cast<ptrdiff_t>(width));
      n_visible[head].push_back(entries[head].n - call.n_new + from.rows[static_cast<size_t>(i)] +
                                1);
    }
    AddRows({.queries = queries,
             .norms = std::span(from.norms).subspan(static_cast<size_t>(first)),
             .n_visible = n_visible[head]},
            entries[head].n - n_own, rows);
  }
  const int64_t n_parts = (n + kRowsAtOnce - 1) / kRowsAtOnce;
  call.backend.ForEach(n_parts * std::ssize(notes), [&](int64_t i) {
    const auto head = static_cast<size_t>(i / n_parts);
    const auto part = static_cast<size_t>(i % n_parts * kRowsAtOnce);
    const std::span<const int64_t> all = n_visible[head];
    const size_t n_rows = std::min(static_cast<size_t>(kRowsAtOnce), all.size() - part);
    ReferenceRows& rows = notes[head].rows;
    FillOwn(call.backend, rows.size() - n + static_cast<int64_t>(part), all.subspan(part, n_rows),
            entries[head].n - n_own, entries[head], rows);
  });
}

void TakeLargest(const kernels::Backend& backend, const HeadEntriesOnHost& entries,
                 HeadNotes& notes) {
  const ReferenceRows& rows = notes.rows;
  const auto n = static_cast<size_t>(entries.n);
  std::vector<float> masses;
  for (int64_t first = 0; first < rows.size(); first += kRowsAtOnce) {
    const auto n_rows = static_cast<size_t>(std::min(kRowsAtOnce, rows.size() - first));
    const size_t n_queries = n_rows * static_cast<size_t>(rows.group);
    masses.resize(n_queries * n);
    Masses(backend, rows, first,
           std::span(rows.n_visible).subspan(static_cast<size_t>(first), n_rows), entries, masses);
    for (size_t i = 0; i < n_queries; ++i) {
      const std::span<const float> of_query = std::span(masses).subspan(i * n, n);
      double sum = rows.own_sum[rows.At(first, 0) + i];
      for (const float mass : of_query) sum += mass;
      if (!(sum > 0)) continue;
      const auto inverse = static_cast<float>(1 / sum);
      for (size_t entry = 0; entry < n; ++entry) {
        notes.scores[entry] = std::max(notes.scores[entry], of_query[entry] * inverse);
      }
    }
  }
}

std::vector<std::vector<float>> Grams(const kernels::Backend& backend, const ReferenceRows& rows,
                                      std::span<const std::vector<float>> projections) {
  const int64_t dim = rows.value_dim;
  const auto count = static_cast<size_t>(dim);
  std::vector<std::vector<float>> grams(static_cast<size_t>(rows.group));
  for (std::vector<float>& gram : grams) {
    gram.assign(count * count, 0.0f);
    for (size_t d = 0; d < count && projections.empty(); ++d) gram[d * count + d] = 1;
  }
  std::vector<float> transposed;
  for (size_t head = 0; head < projections.size(); ++head) {
    const std::vector<float>& weights = projections[head];
    const auto n = std::ssize(weights) / dim;
    transposed.resize(weights.size());
    for (int64_t row = 0; row < n; ++row) {
      for (int64_t d = 0; d < dim; ++d) {
        transposed[static_cast<size_t>(d * n + row)] = weights[static_cast<size_t>(row * dim + d)];
      }
    }
    backend.Multiply({.a = {transposed.data(), dim, n, n},
                      .b = {weights.data(), n, dim, dim},
                      .out = {grams[head].data(), dim, dim, dim}});
  }
  return grams;
}

void ForHeads(const LayerCall& call, int bias_column, Projections projections,
              const std::function<void(const LoadedHead& head)>& work) {
  // As many as keep the threads busy, and no more: what is read of a head takes as much as floats.
  constexpr size_t kHeadsAtOnce = 16;
  std::vector<LoadedHead> loaded;
  const auto n_heads = static_cast<size_t>(call.n_kv_heads());
  LayerCall at = call;
  for (at.layer = 0; at.layer < call.n_layers; ++at.layer) {
    for (int head = 0; head < call.n_kv_heads(); ++head) {
      LoadedHead& one = loaded.emplace_back();
      one.layer = at.layer;
      one.kv_head = head;
      one.index = static_cast<size_t>(at.layer) * n_heads + static_cast<size_t>(head);
      const std::span<const Slot> order = at.order(head);
      one.slots.assign(order.begin(), order.end());
      one.entries = ReadEntries(at, head, bias_column);
      if (projections == Projections::kNo || call.projections == nullptr) continue;
      for (int i = 0; i < call.group(); ++i) {
        one.projections.emplace_back(static_cast<size_t>(call.projections->model_dim()) *
                                     static_cast<size_t>(one.entries.value_dim));
        call.projections->Read(at.layer, head * call.group() + i, one.projections.back());
      }
    }
    if (loaded.size() + n_heads <= kHeadsAtOnce && at.layer + 1 < call.n_layers) continue;
    call.backend.ForEach(std::ssize(loaded),
                         [&](int64_t i) { work(loaded[static_cast<size_t>(i)]); });
    loaded.clear();
  }
}

}  // namespace winnow::compression::methods
