#include <algorithm>
#include <cmath>

#include "kernels/cpu/attention/attention_call.h"

namespace winnow::kernels::cpu {
namespace {

// Weights that attend_chunk stores for the taps: [head][part][row][kChunkSlots].
struct ChunkWeights {
  float* all = nullptr;
  int64_t n_parts = 0;
  int64_t n_rows = 0;

  float* At(int64_t head, int64_t part, int64_t row) const {
    return all + ((head * n_parts + part) * n_rows + row) * kChunkSlots;
  }
};

void FillTaps(const Call& call, const DecodeKernels& kernels, const Partials& partials,
              const RowTotal* totals, const ChunkWeights& weights, int64_t thread_floats) {
  const HostAttention& a = call.a;
  const int group = call.shape.group;
  const int64_t n_rows = a.n_queries * group;
  const int n_heads = call.HeadsPerList();
  const int64_t lists_per_head = call.ListsPerHead();
  call.pool.ParallelFor(call.n_heads * lists_per_head, [&](int64_t list, int thread) {
    const int64_t head = list / lists_per_head;
    const int64_t first_head = list % lists_per_head;
    float* reduced = call.ThreadScratch(thread_floats, thread);  // [kChunkSlots]
    float* factors = reduced + kChunkSlots;                      // [n_heads]
    for (int64_t query = 0; query < a.n_queries; ++query) {
      const int64_t visible = call.Visible(head, query);
      const int64_t row = query * group + first_head;
      for (int64_t first = 0; first < visible; first += kChunkSlots) {
        for (int h = 0; h < n_heads; ++h) {
          const RowTotal& total = totals[head * n_rows + row + h];
          const Partial part = partials.At(head, first / kChunkSlots, row + h);
          factors[h] = std::exp2(*part.max - total.max) / total.sum;
        }
        const auto n = static_cast<int>(std::min<int64_t>(kChunkSlots, visible - first));
        AddToTaps(call, kernels, {.list = list, .query = query, .first = first, .n = n},
                  {weights.At(head, first / kChunkSlots, row), kChunkSlots, factors}, reduced);
      }
    }
  });
}

}  // namespace

RowTotal Merge(const Partials& partials, int64_t head, int64_t n_parts, int64_t row, int value_dim,
               float* out) {
  RowTotal total = {.max = *partials.At(head, 0, row).max, .sum = 0};
  for (int64_t part = 1; part < n_parts; ++part) {
    total.max = std::max(total.max, *partials.At(head, part, row).max);
  }
  for (int64_t part = 0; part < n_parts; ++part) {
    const Partial p = partials.At(head, part, row);
    const float factor = std::exp2(*p.max - total.max);
    total.sum += factor * *p.sum;
    if (part == 0) {
      for (int i = 0; i < value_dim; ++i) out[i] = factor * p.acc[i];
    } else {
      for (int i = 0; i < value_dim; ++i) out[i] += factor * p.acc[i];
    }
  }
  const float inverse = 1 / total.sum;
  for (int i = 0; i < value_dim; ++i) out[i] *= inverse;
  return total;
}

void AddToTaps(const Call& call, const DecodeKernels& kernels, const TapPlace& place,
               const QueryWeights& weights, float* reduced) {
  const HostAttention& a = call.a;
  const auto list = static_cast<size_t>(place.list);
  const int64_t row = place.query - (a.n_queries - a.found->n_last_rows);
  const bool in_row = a.taps.last_rows > 0 && row >= 0;
  const bool in_last_sums = place.query >= a.n_queries - a.taps.last_sums;
  if (!in_row && !in_last_sums && !a.taps.sees_all()) return;
  float* out = reduced;
  if (in_row) {
    const int64_t n_entries = a.heads[place.list / call.ListsPerHead()].n_slots;
    out = a.found->last_rows[list].data() + row * n_entries + place.first;
  }
  kernels.reduce_chunk({.weights = weights.weights,
                        .weights_stride = weights.stride,
                        .n_heads = call.HeadsPerList(),
                        .factors = weights.factors,
                        .n_slots = place.n,
                        .reduce = a.taps.reduce,
                        .out = out});
  if (in_last_sums) {
    double* sums = a.found->last_sums[list].data() + place.first;
    for (int s = 0; s < place.n; ++s) sums[s] += out[s];
  }
  if (a.taps.column_sums) {
    double* sums = a.found->column_sums[list].data() + place.first;
    for (int s = 0; s < place.n; ++s) sums[s] += out[s];
  }
  if (a.taps.square_sums) {
    double* sums = a.found->square_sums[list].data() + place.first;
    for (int s = 0; s < place.n; ++s) sums[s] += double{out[s]} * out[s];
  }
  if (a.taps.column_max) {
    float* largest = a.found->column_max[list].data() + place.first;
    for (int s = 0; s < place.n; ++s) largest[s] = std::max(largest[s], out[s]);
  }
}

void AttendFewQueries(const Call& call, const DecodeKernels& kernels) {
  const HostAttention& a = call.a;
  const AttentionShape& shape = call.shape;
  const int64_t longest = call.LongestHead();
  const int64_t n_parts = DivideUp(longest, kChunkSlots);
  const int64_t n_rows = a.n_queries * shape.group;
  const Partials partials(call.scratch.partials, call.n_heads, n_parts, n_rows, shape.value_dim);
  const bool taps = a.taps.any();
  ChunkWeights weights = {nullptr, n_parts, n_rows};
  if (taps) {
    weights.all =
        Reserve(call.scratch.weights, call.n_heads * n_parts * n_rows * int64_t{kChunkSlots});
  }
  const int64_t thread_floats = kernels.scratch_floats(shape);
  call.ReserveThreads(thread_floats);

  // If there are enough chunks, a thread takes adjacent ones, so that it can prefetch the next.
  const int64_t n_chunks = call.n_heads * n_parts;
  const auto attend = [&](int64_t item, int thread) {
    const int64_t head = item / n_parts;
    const int64_t part = item % n_parts;
    const HostHead& store = a.heads[head];
    const int64_t first = part * kChunkSlots;
    const std::byte* keys = store.keys + first * shape.key_row_bytes;
    const bool next_is_whole = first + 2 * kChunkSlots <= store.n_slots;
    const std::byte* next_keys = next_is_whole ? keys + kChunkSlots * shape.key_row_bytes : nullptr;
    EntryMap entries = store.entries.From(first);
    for (int64_t query = 0; query < a.n_queries; ++query, ++entries.query_position) {
      const int64_t n = std::min<int64_t>(kChunkSlots, call.Visible(head, query) - first);
      if (n <= 0) continue;
      const int64_t row = query * shape.group;
      kernels.attend_chunk(shape, {.q = call.Queries(head) + query * a.q_stride,
                                   .keys = keys,
                                   .values = store.values + first * shape.value_row_bytes,
                                   .next_keys = next_keys,
                                   .entries = entries,
                                   .n_slots = static_cast<int>(n),
                                   .partial = partials.At(head, part, row),
                                   .weights = taps ? weights.At(head, part, row) : nullptr,
                                   .weights_stride = kChunkSlots,
                                   .scratch = call.ThreadScratch(thread_floats, thread)});
    }
  };
  // MostSimilar, which often reads these rows next, partitions them the same way.
  call.pool.ParallelFor(n_chunks, attend, ChunksTogether(n_chunks, call.pool.n_threads()),
                        ThreadPool::Schedule::kStaticStealing);

  std::vector<RowTotal>& totals = call.scratch.totals;
  if (taps) totals.resize(static_cast<size_t>(call.n_heads * n_rows));
  call.pool.ParallelFor(
      call.n_heads * n_rows,
      [&](int64_t item, int) {
        const int64_t head = item / n_rows;
        const int64_t row = item % n_rows;
        const int64_t parts = DivideUp(call.Visible(head, row / shape.group), kChunkSlots);
        const RowTotal total =
            Merge(partials, head, parts, row, shape.value_dim, call.Out(head, row));
        if (taps) totals[item] = total;
      },
      16);
  if (taps) FillTaps(call, kernels, partials, totals.data(), weights, thread_floats);
}

}  // namespace winnow::kernels::cpu
