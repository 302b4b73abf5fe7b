#include "kernels/cpu/attention.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "kernels/cpu/attention_kernels.h"

namespace winnow::kernels::cpu {
namespace {

// Parts of the slots whose results are put together afterwards, in their order. Their size depends
// on the shape of the call alone, so that the result does not depend on the number of threads.
struct Split {
  int64_t slots = 0;  // per part
  int64_t parts = 0;  // of the longest head
};

constexpr uintptr_t kLineBytes = 64;

int64_t DivideUp(int64_t a, int64_t b) { return (a + b - 1) / b; }

int64_t LongestHead(const HostAttention& a) {
  int64_t longest = 0;
  for (const HostHead& head : a.heads) longest = std::max(longest, head.n_slots);
  return longest;
}

// Partial results of every (KV head, part, row) of a call.
class Partials {
 public:
  Partials(std::vector<float>& memory, int64_t n_heads, int64_t n_parts, int64_t n_rows,
           int value_dim)
      : n_parts_(n_parts), n_rows_(n_rows), value_dim_(value_dim) {
    const int64_t n = n_heads * n_parts * n_rows;
    const auto needed = static_cast<size_t>(n * (2 + value_dim));
    if (memory.size() < needed) memory.resize(needed);
    max_ = memory.data();
    sum_ = max_ + n;
    acc_ = sum_ + n;
  }

  Partial At(int64_t head, int64_t part, int64_t row) const {
    const int64_t i = (head * n_parts_ + part) * n_rows_ + row;
    return {max_ + i, sum_ + i, acc_ + i * value_dim_};
  }

 private:
  int64_t n_parts_;
  int64_t n_rows_;
  int value_dim_;
  float* max_;
  float* sum_;
  float* acc_;
};

// Puts the first n_parts parts of a row together: writes the result to `out`, and the row's max and
// sum over all of them to part 0 if the taps need them.
struct RowTotal {
  float max = 0;
  float sum = 0;
};
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

// What the steps of one call share.
struct Call {
  const HostAttention& a;
  AttentionShape shape;
  int64_t n_heads = 0;  // KV heads
  AttentionScratch& scratch;
  ThreadPool& pool;

  const float* Queries(int64_t head) const { return a.q + head * shape.group * shape.key_dim; }
  // Where row `row` (query row / group, head row % group) of a KV head goes.
  float* Out(int64_t head, int64_t row) const {
    return a.out + row / shape.group * a.out_stride +
           (head * shape.group + row % shape.group) * shape.value_dim;
  }
  // Slots that query i of a head sees.
  int64_t Visible(int64_t head, int64_t query) const {
    return a.heads[head].n_slots - a.n_queries + query + 1;
  }
  // Aligned to a cache line, so that no vector of a tile straddles two.
  float* ThreadScratch(int64_t floats_per_thread, int thread) const {
    const auto address = reinterpret_cast<uintptr_t>(scratch.threads.data());
    const auto aligned = (address + kLineBytes - 1) / kLineBytes * kLineBytes;
    return reinterpret_cast<float*>(aligned) + floats_per_thread * thread;
  }
  // Requires: floats_per_thread is a multiple of a cache line's.
  void ReserveThreads(int64_t floats_per_thread) const {
    const auto needed =
        static_cast<size_t>(floats_per_thread * pool.n_threads()) + kLineBytes / sizeof(float);
    if (scratch.threads.size() < needed) scratch.threads.resize(needed);
  }
};

void PrepareTaps(const Call& call) {
  const HostAttention& a = call.a;
  if (!a.taps.any()) return;
  *a.found = {};
  a.found->n_last_rows = static_cast<int>(std::min<int64_t>(a.taps.last_rows, a.n_queries));
  if (a.taps.last_rows > 0) a.found->last_rows.resize(call.n_heads);
  if (a.taps.column_sums) a.found->column_sums.resize(call.n_heads);
  for (int64_t head = 0; head < call.n_heads; ++head) {
    const int64_t n_slots = a.heads[head].n_slots;
    if (a.taps.last_rows > 0) a.found->last_rows[head].resize(a.found->n_last_rows * n_slots);
    if (a.taps.column_sums) a.found->column_sums[head].resize(n_slots);
  }
}

// --- few queries ---

void DecodeTaps(const Call& call, const DecodeKernels& kernels, const Partials& partials,
                const std::vector<RowTotal>& totals, const float* weights, int64_t stride) {
  const HostAttention& a = call.a;
  const int group = call.shape.group;
  const int64_t n_rows = a.n_queries * group;
  call.pool.ParallelFor(call.n_heads, [&](int64_t head, int) {
    std::vector<float> factors(group);
    std::vector<float> reduced(kChunkSlots);
    for (int64_t query = 0; query < a.n_queries; ++query) {
      const int64_t visible = call.Visible(head, query);
      const int64_t last_row = query - (a.n_queries - a.found->n_last_rows);
      for (int64_t first = 0; first < visible; first += kChunkSlots) {
        for (int h = 0; h < group; ++h) {
          const RowTotal& total = totals[head * n_rows + query * group + h];
          const Partial part = partials.At(head, first / kChunkSlots, query * group + h);
          factors[h] = std::exp2(*part.max - total.max) / total.sum;
        }
        const auto n = static_cast<int>(std::min<int64_t>(kChunkSlots, visible - first));
        float* out = reduced.data();
        if (a.taps.last_rows > 0 && last_row >= 0) {
          out = a.found->last_rows[head].data() + last_row * a.heads[head].n_slots + first;
        }
        kernels.reduce_chunk(call.shape,
                             {.weights = weights + (head * n_rows + query * group) * stride + first,
                              .weights_stride = stride,
                              .factors = factors.data(),
                              .n_slots = n,
                              .reduce = a.taps.reduce,
                              .out = out});
        if (a.taps.column_sums) {
          double* sums = a.found->column_sums[head].data() + first;
          for (int s = 0; s < n; ++s) sums[s] += out[s];
        }
      }
    }
  });
}

// Every query on its own: chunks of slots over the threads, all query heads of a group at once.
void Decode(const Call& call, const DecodeKernels& kernels) {
  const HostAttention& a = call.a;
  const AttentionShape& shape = call.shape;
  const int64_t longest = LongestHead(a);
  const int64_t n_parts = DivideUp(longest, kChunkSlots);
  const int64_t n_rows = a.n_queries * shape.group;
  const Partials partials(call.scratch.partials, call.n_heads, n_parts, n_rows, shape.value_dim);
  const bool taps = a.taps.any();
  if (taps) {
    const auto needed = static_cast<size_t>(call.n_heads * n_rows * longest);
    if (call.scratch.statistics.size() < needed) call.scratch.statistics.resize(needed);
  }
  const int64_t thread_floats = kernels.scratch_floats(shape);
  call.ReserveThreads(thread_floats);

  call.pool.ParallelFor(call.n_heads * n_parts, [&](int64_t item, int thread) {
    const int64_t head = item / n_parts;
    const int64_t part = item % n_parts;
    const HostHead& store = a.heads[head];
    const int64_t first = part * kChunkSlots;
    for (int64_t query = 0; query < a.n_queries; ++query) {
      const int64_t n = std::min<int64_t>(kChunkSlots, call.Visible(head, query) - first);
      if (n <= 0) continue;
      const int64_t row = query * shape.group;
      kernels.attend_chunk(shape, {.q = call.Queries(head) + query * a.q_stride,
                                   .keys = store.keys + first * shape.key_row_bytes,
                                   .values = store.values + first * shape.value_row_bytes,
                                   .n_slots = static_cast<int>(n),
                                   .partial = partials.At(head, part, row),
                                   .weights = taps ? call.scratch.statistics.data() +
                                                         (head * n_rows + row) * longest + first
                                                   : nullptr,
                                   .weights_stride = longest,
                                   .scratch = call.ThreadScratch(thread_floats, thread)});
    }
  });

  std::vector<RowTotal> totals(taps ? call.n_heads * n_rows : 0);
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
  if (taps) DecodeTaps(call, kernels, partials, totals, call.scratch.statistics.data(), longest);
}

// --- many queries ---

// Slots are split only where there are too few blocks of rows to keep many threads busy.
Split SplitSlots(const Call& call, int64_t n_blocks) {
  constexpr int64_t kEnoughItems = 64;
  constexpr int64_t kFewestSlots = 1024;
  const int64_t longest = LongestHead(call.a);
  const int64_t items = call.n_heads * n_blocks;
  const int64_t wanted = std::max<int64_t>(1, kEnoughItems / items);
  const int64_t possible = std::max<int64_t>(1, longest / kFewestSlots);
  const int64_t slots = DivideUp(longest, std::min(wanted, possible));
  return {slots, DivideUp(longest, slots)};
}

void PrefillTaps(const Call& call, const PrefillKernels& kernels, const float* max,
                 const float* sum, int64_t thread_floats) {
  const HostAttention& a = call.a;
  const int64_t n_tiles = DivideUp(LongestHead(a), kTapSlots);
  const int64_t first_row_query = a.n_queries - a.found->n_last_rows;
  const int64_t n_rows = a.n_queries * call.shape.group;
  // The first slots are seen by most queries: they are handed out first.
  call.pool.ParallelFor(n_tiles * call.n_heads, [&](int64_t item, int thread) {
    const int64_t head = item % call.n_heads;
    const int64_t first = item / call.n_heads * kTapSlots;
    const HostHead& store = a.heads[head];
    const auto n = static_cast<int>(std::min<int64_t>(kTapSlots, store.n_slots - first));
    if (n <= 0) return;
    const bool rows = a.taps.last_rows > 0;
    kernels.tap_slots(
        call.shape,
        {.q = call.Queries(head),
         .q_stride = a.q_stride,
         .keys = store.keys,
         .visible_before = store.n_slots - a.n_queries,
         .first_query = a.taps.column_sums ? 0 : first_row_query,
         .end_query = a.n_queries,
         .first_slot = first,
         .n_slots = n,
         .max = max + head * n_rows,
         .sum = sum + head * n_rows,
         .reduce = a.taps.reduce,
         .column_sums = a.taps.column_sums ? a.found->column_sums[head].data() + first : nullptr,
         .rows = rows ? a.found->last_rows[head].data() + first : nullptr,
         .rows_stride = store.n_slots,
         .first_row_query = first_row_query,
         .scratch = call.ThreadScratch(thread_floats, thread)});
  });
}

void Prefill(const Call& call, const PrefillKernels& kernels) {
  const HostAttention& a = call.a;
  const AttentionShape& shape = call.shape;
  const int64_t n_rows = a.n_queries * shape.group;
  const int64_t n_blocks = DivideUp(n_rows, kBlockRows);
  const Split split = SplitSlots(call, n_blocks);
  const bool merge = split.parts > 1;
  const Partials partials(call.scratch.partials, merge ? call.n_heads : 0, split.parts, n_rows,
                          shape.value_dim);
  // Maxima and sums of all rows, which the taps' second pass starts from.
  const auto n_statistics = static_cast<size_t>(2 * call.n_heads * n_rows);
  if (call.scratch.statistics.size() < n_statistics) call.scratch.statistics.resize(n_statistics);
  float* max = call.scratch.statistics.data();
  float* sum = max + call.n_heads * n_rows;
  const int64_t thread_floats = kernels.scratch_floats(shape);
  call.ReserveThreads(thread_floats);

  // The last blocks see the most slots: they are handed out first.
  call.pool.ParallelFor(n_blocks * split.parts * call.n_heads, [&](int64_t item, int thread) {
    const int64_t head = item % call.n_heads;
    const int64_t part = item / call.n_heads % split.parts;
    const int64_t block = n_blocks - 1 - item / call.n_heads / split.parts;
    const HostHead& store = a.heads[head];
    const int64_t row = block * kBlockRows;
    const auto block_rows = static_cast<int>(std::min<int64_t>(kBlockRows, n_rows - row));
    const int64_t end = std::min((part + 1) * split.slots,
                                 call.Visible(head, (row + block_rows - 1) / shape.group));
    float* out[kBlockRows];
    for (int i = 0; i < block_rows; ++i) {
      out[i] = merge ? partials.At(head, part, row + i).acc : call.Out(head, row + i);
    }
    const Partial p =
        merge ? partials.At(head, part, row)
              : Partial{.max = max + head * n_rows + row, .sum = sum + head * n_rows + row};
    kernels.attend_block(shape, {.q = call.Queries(head),
                                 .q_stride = a.q_stride,
                                 .keys = store.keys,
                                 .values = store.values,
                                 .first_row = row,
                                 .n_rows = block_rows,
                                 .visible_before = store.n_slots - a.n_queries,
                                 .first_slot = part * split.slots,
                                 .end_slot = end,
                                 .max = p.max,
                                 .sum = p.sum,
                                 .out = out,
                                 .divide = !merge,
                                 .scratch = call.ThreadScratch(thread_floats, thread)});
  });

  if (merge) {
    call.pool.ParallelFor(
        call.n_heads * n_rows,
        [&](int64_t item, int) {
          const int64_t head = item / n_rows;
          const int64_t row = item % n_rows;
          const RowTotal total =
              Merge(partials, head, split.parts, row, shape.value_dim, call.Out(head, row));
          max[item] = total.max;
          sum[item] = total.sum;
        },
        16);
  }
  if (a.taps.any()) PrefillTaps(call, kernels, max, sum, thread_floats);
}

}  // namespace

void Attend(const HostAttention& a, int64_t target, AttentionScratch& scratch, ThreadPool& pool) {
  const auto n_heads = static_cast<int64_t>(a.heads.size());
  WINNOW_CHECK(n_heads > 0 && a.n_q_heads % n_heads == 0);
  for (const HostHead& head : a.heads) WINNOW_CHECK(head.n_slots >= a.n_queries);
  if (a.n_queries == 0) return;
  constexpr float kLog2E = 1.44269504088896340736f;
  const Call call = {.a = a,
                     .shape = {.group = static_cast<int>(a.n_q_heads / n_heads),
                               .key_dim = a.key_dim,
                               .value_dim = a.value_dim,
                               .key_type = a.key_type,
                               .value_type = a.value_type,
                               .scale = a.scale * kLog2E,
                               .key_row_bytes = gguf::RowBytes(a.key_type, a.key_dim),
                               .value_row_bytes = gguf::RowBytes(a.value_type, a.value_dim)},
                     .n_heads = n_heads,
                     .scratch = scratch,
                     .pool = pool};
  PrepareTaps(call);
  // Below a dozen rows a block of the many-query path would be mostly empty.
  constexpr int64_t kFewRows = 12;
  if (a.n_queries == 1 || a.n_queries * call.shape.group <= kFewRows) {
    Decode(call, DecodeKernelsFor(target));
  } else {
    Prefill(call, PrefillKernelsFor(target));
  }
}

}  // namespace winnow::kernels::cpu
