#include "compression/methods/winnow_notes.h"

#include <algorithm>
#include <span>
#include <utility>

namespace winnow::compression::methods {

HeadEntriesOnHost ReadEntries(const LayerCall& call, int head, int bias_column,
                              int64_t first_rank) {
  const cache::Cache& cache = call.cache;
  const std::span<const Slot> order = call.order(head).subspan(static_cast<size_t>(first_rank));
  HeadEntriesOnHost entries;
  entries.n = std::ssize(order);
  entries.key_dim = cache.config().shape.key_dim;
  entries.value_dim = cache.config().shape.value_dim;
  const auto n = order.size();
  std::vector<float> rows(n * static_cast<size_t>(entries.key_dim));
  call.backend.ReadRows(cache.keys(call.layer, head), order, rows);
  entries.keys = Transposed(rows, n, static_cast<size_t>(entries.key_dim));
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

std::vector<int64_t> AddCallRows(const LayerCall& call, int head, int64_t first, int64_t n_own,
                                 ReferenceRows& rows) {
  const attention::Rows& from = *call.rows;
  const cache::CacheShape& shape = call.cache.config().shape;
  rows.group = call.group();
  rows.key_dim = shape.key_dim;
  rows.value_dim = shape.value_dim;
  rows.scale = call.scale;
  const int64_t n_entries = call.n_slots(head);
  const int64_t width = int64_t{rows.group} * rows.key_dim;
  std::vector<float> queries;
  std::vector<int64_t> n_visible;
  for (int64_t i = first; i < from.size(); ++i) {
    const auto at = from.queries.begin() + (i * call.n_kv_heads() + head) * width;
    queries.insert(queries.end(), at, at + width);
    n_visible.push_back(n_entries - call.n_new + from.rows[static_cast<size_t>(i)] + 1);
  }
  AddRows({.queries = queries,
           .norms = std::span(from.norms).subspan(static_cast<size_t>(first)),
           .n_visible = n_visible},
          n_entries - n_own, rows);
  return n_visible;
}

void TakeReplay(const LayerCall& call, int bias_column) {
  Notes& notes = NotesIn(call);
  const size_t first_head = notes.First(call);
  const int64_t n_rows = call.rows->size();
  const int64_t n_parts = (n_rows + kRowsAtOnce - 1) / kRowsAtOnce;
  std::vector<HeadEntriesOnHost> own;
  std::vector<std::vector<int64_t>> n_visible;  // counted among `own`
  for (int head = 0; head < call.n_kv_heads(); ++head) {
    const auto at = static_cast<size_t>(head);
    const int64_t n_before = call.n_slots(head) - call.n_new;
    own.push_back(ReadEntries(call, head, bias_column, n_before));
    HeadNotes& of_head = notes.heads[first_head + at];
    of_head.max_covers_own_only = true;
    n_visible.push_back(AddCallRows(call, head, 0, call.n_new, of_head.rows));
    for (int64_t& n : n_visible.back()) n -= n_before;
    std::vector<float>& scores = notes.scores[first_head + at];
    scores.resize(static_cast<size_t>(n_before), 0);
    const std::vector<float>& largest = call.taps->column_max[at];
    const std::span<const Slot> order = call.order(head);
    for (size_t rank = 0; rank < scores.size(); ++rank) {
      scores[rank] = std::max(scores[rank], largest[static_cast<size_t>(order[rank])]);
    }
  }
  call.backend.ForEach(n_parts * call.n_kv_heads(), [&](int64_t i) {
    const auto head = static_cast<size_t>(i / n_parts);
    const int64_t first = i % n_parts * kRowsAtOnce;
    ReferenceRows& rows = notes.heads[first_head + head].rows;
    FillOwn(call.backend, rows.size() - n_rows + first,
            std::span(n_visible[head])
                .subspan(static_cast<size_t>(first),
                         static_cast<size_t>(std::min(kRowsAtOnce, n_rows - first))),
            0, own[head], rows);
  });
}

const ReferenceRows& CompleteRows(const kernels::Backend& backend, const LoadedHead& head,
                                  HeadNotes& notes) {
  if (notes.max_covers_own_only) IncludeInMax(backend, head.entries, notes.rows);
  notes.max_covers_own_only = false;
  return notes.rows;
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
  for (size_t head = 0; head < projections.size(); ++head) {
    const std::vector<float>& weights = projections[head];
    const auto n = std::ssize(weights) / dim;
    const std::vector<float> transposed = Transposed(weights, static_cast<size_t>(n), count);
    backend.Multiply({.a = {transposed.data(), dim, n, n},
                      .b = {weights.data(), n, dim, dim},
                      .out = {grams[head].data(), dim, dim, dim}});
  }
  return grams;
}

size_t ForSomeHeads(const LayerCall& call, int bias_column, Projections projections,
                    const HeadRange& range,
                    const std::function<void(const LoadedHead& head)>& work) {
  // Enough heads to keep the threads busy, but no more: their entries are held as floats meanwhile.
  constexpr size_t kMinHeads = 2, kMaxHeads = 16;
  constexpr int64_t kEntries = 32768;
  const auto n_heads = static_cast<size_t>(call.n_kv_heads());
  std::vector<LoadedHead> loaded;
  int64_t n_entries = 0;
  size_t index = range.first;
  for (; index < range.end && loaded.size() < kMaxHeads; ++index) {
    LayerCall at = call;
    at.layer = static_cast<int>(index / n_heads);
    const auto head = static_cast<int>(index % n_heads);
    n_entries += at.n_slots(head);
    if (n_entries > kEntries && loaded.size() >= kMinHeads) break;
    LoadedHead& one = loaded.emplace_back();
    one.index = index;
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
  call.backend.ForEach(std::ssize(loaded),
                       [&](int64_t i) { work(loaded[static_cast<size_t>(i)]); });
  return index;
}

void ForAllHeads(const LayerCall& call, int bias_column, Projections projections,
                 const HeadRange& range, const std::function<void(const LoadedHead& head)>& work) {
  for (HeadRange left = range; left.first < left.end;) {
    left.first = ForSomeHeads(call, bias_column, projections, left, work);
  }
}

std::vector<float> TakeWindow(const kernels::Backend& backend, const LoadedHead& head,
                              HeadNotes& notes) {
  std::vector<float> scores;
  notes.rows = std::move(notes.window);
  FillOwn(backend, 0, notes.rows.n_visible, head.entries.n, head.entries, notes.rows);
  notes.targets = MakeTargets(backend, notes.rows, head.entries, &scores);
  return scores;
}

}  // namespace winnow::compression::methods
