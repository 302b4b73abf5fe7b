#include <algorithm>
#include <cstring>
#include <span>

#include "base/check.h"
#include "base/list_stride.h"
#include "kernels/cpu/attention/attention_call.h"
#include "kernels/cpu/attention/top_p.h"

namespace winnow::kernels::cpu {
namespace {

// Two lists of one query head, `stride` floats each.
struct HeadScores {
  float* scores = nullptr;   // of entries or rows; later working memory, or weights of rows
  float* weights = nullptr;  // of entries, unnormalised
};

struct Numbers {
  float* all = nullptr;
  int64_t longest = 0;  // most entries or rows of a head
  int64_t stride = 0;

  HeadScores At(int64_t q_head) const {
    return {all + 2 * q_head * stride, all + (2 * q_head + 1) * stride};
  }
  int64_t head_stride() const { return 2 * stride; }
};

// If heads divide evenly among threads, each thread processes whole heads: it does not wait for
// others, and its data stays in its caches.
bool ByHeads(const Call& call) { return call.n_heads % call.pool.n_threads() == 0; }

// Whether scores are computed per row. Rotated keys differ per entry; without rotation, an entry's
// score is its row's score times its factor, so each row is scored once.
bool ScoresPerRow(const Call& call, const HostHead& head) {
  return head.entries.rows != nullptr && !call.shape.rotation.any();
}

void Score(const Call& call, const DecodeKernels& kernels, const Numbers& numbers, int64_t head,
           int64_t part, float* scratch) {
  const AttentionShape& shape = call.shape;
  const HostHead& store = call.a.heads[head];
  const bool of_rows = ScoresPerRow(call, store);
  const int64_t first = part * kChunkSlots;
  const int64_t n =
      std::min<int64_t>(kChunkSlots, (of_rows ? store.n_rows : store.n_slots) - first);
  if (n <= 0) return;
  const EntryMap entries = of_rows ? EntryMap{} : store.entries.From(first);
  const int64_t first_row = entries.rows == nullptr ? first : 0;
  // The entries of all chunks share the same few rows. The thread that processes the whole head
  // prefetches them once.
  constexpr int64_t kFewBytes = 32 << 10;
  const int64_t row_bytes = store.n_rows * shape.key_row_bytes;
  const bool fetched = entries.rows != nullptr && row_bytes <= kFewBytes && ByHeads(call);
  if (fetched && part == 0) PrefetchPolicy::PrefetchIntoL1(store.keys, row_bytes);
  kernels.score_chunk(shape, {.q = call.Queries(head),
                              .keys = store.keys + first_row * shape.key_row_bytes,
                              .entries = entries,
                              .n_slots = static_cast<int>(n),
                              .weights = numbers.At(head * shape.group).scores + first,
                              .weights_stride = numbers.head_stride(),
                              .rows_fetched = fetched,
                              .scratch = scratch});
}

// Adds the weights of entries to the weights of their rows, for kGroup query heads at once: their
// sums are independent, while consecutive entries may share a row and wait for each other.
template <int kGroup>
void SumByRow(const HostHead& store, const HeadScores& first, int64_t stride) {
  const int32_t* rows = store.entries.rows;
  for (int64_t entry = 0; entry < store.n_slots; ++entry) {
    const int32_t row = rows[entry];
    WINNOW_DCHECK(row >= 0 && row < store.n_rows);
    float* sums = first.scores + row;
    const float* weights = first.weights + entry;
#pragma GCC unroll 4
    for (int h = 0; h < kGroup; ++h) sums[h * stride] += weights[h * stride];
  }
}

// Weights of the rows of one KV head's query heads: sums over the entries that share a row.
void SumEntriesOfRows(const Call& call, const Numbers& numbers, int64_t head) {
  const HostHead& store = call.a.heads[head];
  const int64_t stride = numbers.head_stride();
  for (int h = 0; h < call.shape.group;) {
    const HeadScores first = numbers.At(head * call.shape.group + h);
    const int n = std::min(4, call.shape.group - h);
    for (int i = 0; i < n; ++i) std::fill_n(first.scores + i * stride, store.n_rows, 0.0f);
    switch (n) {
      case 1:
        SumByRow<1>(store, first, stride);
        break;
      case 2:
        SumByRow<2>(store, first, stride);
        break;
      case 3:
        SumByRow<3>(store, first, stride);
        break;
      default:
        SumByRow<4>(store, first, stride);
    }
    h += n;
  }
}

// Computes the weights of one query head's entries, and their sum.
void ComputeWeights(const Call& call, const DecodeKernels& kernels, const Numbers& numbers,
                    int64_t q_head) {
  const HostAttention& a = call.a;
  const HostHead& store = a.heads[q_head / call.shape.group];
  const HeadScores at = numbers.At(q_head);
  const bool of_rows = ScoresPerRow(call, store);
  const auto i = static_cast<size_t>(q_head);
  std::vector<RowTotal>& totals = call.scratch.totals;
  totals[i].sum = kernels.softmax({.scores = at.scores,
                                   .rows = of_rows ? store.entries.rows : nullptr,
                                   .factors = of_rows ? store.entries.factors : nullptr,
                                   .n_entries = store.n_slots,
                                   .weights = at.weights});
  if (a.top_p < 1) {
    const auto n = static_cast<size_t>(store.n_slots);
    static_assert(sizeof(int32_t) == sizeof(float));
    const Kept kept =
        KeepTopP({at.weights, n}, double{a.top_p}, {reinterpret_cast<int32_t*>(at.scores), n});
    totals[i].sum = static_cast<float>(kept.sum);
    call.scratch.n_kept[i] = kept.n;
  }
}

// Weighted sum of a part of a KV head's rows.
void AccumulateRows(const Call& call, const DecodeKernels& kernels, const Numbers& numbers,
                    const Partials& partials, int64_t head, int64_t part, float* scratch) {
  const AttentionShape& shape = call.shape;
  const HostHead& store = call.a.heads[head];
  const int64_t first = part * kChunkSlots;
  const int64_t n = std::min<int64_t>(kChunkSlots, store.n_rows - first);
  if (n <= 0) return;
  const HeadScores at = numbers.At(head * shape.group);
  float* weights = store.entries.rows == nullptr ? at.weights : at.scores;
  kernels.accumulate_chunk(shape, {.values = store.values + first * shape.value_row_bytes,
                                   .n_slots = static_cast<int>(n),
                                   .partial = partials.At(head, part, 0),
                                   .weights = weights + first,
                                   .weights_stride = numbers.head_stride(),
                                   .scratch = scratch});
}

// Results of a KV head's query heads: sums over the parts, normalised.
void CombinePartials(const Call& call, const Partials& partials, int64_t head) {
  const AttentionShape& shape = call.shape;
  const int64_t parts = DivideUp(call.a.heads[head].n_rows, kChunkSlots);
  for (int h = 0; h < shape.group; ++h) {
    float* out = call.Out(head, h);
    const float inverse = 1 / call.scratch.totals[static_cast<size_t>(head * shape.group + h)].sum;
    for (int i = 0; i < shape.value_dim; ++i) {
      float sum = 0;
      for (int64_t part = 0; part < parts; ++part) sum += partials.At(head, part, h).acc[i];
      out[i] = sum * inverse;
    }
  }
}

void FillTaps(const Call& call, const DecodeKernels& kernels, const Numbers& numbers, int64_t list,
              float* scratch) {
  const int64_t lists_per_head = call.ListsPerHead();
  const int64_t head = list / lists_per_head;
  const int64_t q_head = head * call.shape.group + list % lists_per_head;
  float* reduced = scratch;                // [kChunkSlots]
  float* factors = reduced + kChunkSlots;  // [query head of the list]
  for (int h = 0; h < call.HeadsPerList(); ++h) {
    factors[h] = 1 / call.scratch.totals[static_cast<size_t>(q_head + h)].sum;
  }
  const int64_t n_entries = call.a.heads[head].n_slots;
  for (int64_t first = 0; first < n_entries; first += kChunkSlots) {
    const auto n = static_cast<int>(std::min<int64_t>(kChunkSlots, n_entries - first));
    AddToTaps(call, kernels, {.list = list, .query = 0, .first = first, .n = n},
              {numbers.At(q_head).weights + first, numbers.head_stride(), factors}, reduced);
  }
}

}  // namespace

void AttendByRows(const Call& call, const DecodeKernels& kernels) {
  const HostAttention& a = call.a;
  const AttentionShape& shape = call.shape;
  int64_t longest = 0;
  for (const HostHead& head : a.heads) longest = std::max({longest, head.n_slots, head.n_rows});
  const int64_t stride = ListStride<float>(longest);
  const Numbers numbers = {Reserve(call.scratch.weights, 2 * a.n_q_heads * stride), longest,
                           stride};
  const int64_t thread_floats = kernels.scratch_floats(shape);
  call.ReserveThreads(thread_floats);
  call.scratch.totals.resize(static_cast<size_t>(a.n_q_heads));
  call.scratch.n_kept.resize(static_cast<size_t>(a.n_q_heads));
  const int64_t n_parts = DivideUp(longest, kChunkSlots);
  const Partials partials(call.scratch.partials, call.n_heads, n_parts, shape.group,
                          shape.value_dim);
  const auto score = [&](int64_t item, int thread) {
    Score(call, kernels, numbers, item / n_parts, item % n_parts,
          call.ThreadScratch(thread_floats, thread));
  };
  const auto compute_weights = [&](int64_t q_head, int) {
    ComputeWeights(call, kernels, numbers, q_head);
  };
  const auto sum_entries = [&](int64_t head, int) {
    if (a.heads[head].entries.rows != nullptr) SumEntriesOfRows(call, numbers, head);
  };
  const auto accumulate_rows = [&](int64_t item, int thread) {
    AccumulateRows(call, kernels, numbers, partials, item / n_parts, item % n_parts,
                   call.ThreadScratch(thread_floats, thread));
  };
  const auto combine = [&](int64_t head, int) { CombinePartials(call, partials, head); };
  const auto fill_taps = [&](int64_t list, int thread) {
    FillTaps(call, kernels, numbers, list, call.ThreadScratch(thread_floats, thread));
  };
  const int64_t n_lists = a.taps.any() ? call.ListsPerHead() : 0;  // per KV head
  if (ByHeads(call)) {
    call.pool.ParallelFor(call.n_heads, [&](int64_t head, int thread) {
      const auto each = [&](const auto& step, int64_t n) {
        for (int64_t i = head * n; i < (head + 1) * n; ++i) step(i, thread);
      };
      each(score, n_parts);
      each(compute_weights, shape.group);
      sum_entries(head, thread);
      each(accumulate_rows, n_parts);
      combine(head, thread);
      each(fill_taps, n_lists);
    });
  } else {
    call.pool.ParallelFor(call.n_heads * n_parts, score);
    call.pool.ParallelFor(a.n_q_heads, compute_weights);
    call.pool.ParallelFor(call.n_heads, sum_entries);
    call.pool.ParallelFor(call.n_heads * n_parts, accumulate_rows);
    call.pool.ParallelFor(call.n_heads, combine);
    call.pool.ParallelFor(call.n_heads * n_lists, fill_taps);
  }
  if (a.top_p >= 1) return;
  *a.n_attended = 0;
  for (const int64_t n : call.scratch.n_kept) *a.n_attended += n;
}

}  // namespace winnow::kernels::cpu
