#include <algorithm>
#include <bit>
#include <mutex>
#include <optional>

#include "kernels/cpu/attention/attention_call.h"

namespace winnow::kernels::cpu {
namespace {

// Partition of the slots; results of the parts are merged in order. The size of a part depends only
// on the shape of the call, so that the result does not depend on the number of threads.
struct Split {
  int64_t slots = 0;  // per part
  int64_t parts = 0;  // of the longest head
};

// One part.
Split WholeHeads(const Call& call) { return {call.LongestHead(), 1}; }

// With fewer items (blocks of rows, over all heads), split the slots even though column sums then
// cost a second pass.
constexpr int64_t kFewItems = 16;

// Splits the slots only if there are too few blocks of rows to keep many threads busy.
Split SplitSlots(const Call& call, int64_t n_blocks) {
  constexpr int64_t kEnoughItems = 64;
  constexpr int64_t kMinSlots = 1024;
  const int64_t longest = call.LongestHead();
  const int64_t items = call.n_heads * n_blocks;
  const int64_t wanted = std::max<int64_t>(1, kEnoughItems / items);
  const int64_t possible = std::max<int64_t>(1, longest / kMinSlots);
  const int64_t slots = DivideUp(longest, std::min(wanted, possible));
  return {slots, DivideUp(longest, slots)};
}

// Floats for a block's kept weights and its column sums in each list.
int64_t BlockSumsFloats(const Call& call) {
  const int64_t n_slots = call.LongestHead();
  const int64_t floats = KeptFloats(n_slots) + call.ListsPerHead() * n_slots;
  return DivideUp(floats, kLineFloats) * kLineFloats;
}

// Whether a block keeps its weights for column sums or column maxima. It does if the taps need one
// of the two as a plain reduction over rows, and the lists are few enough that a loop over all rows
// per list costs less than a second pass. Must not depend on the number of threads, as results
// differ in rounding.
bool KeepsWeights(const Call& call) {
  constexpr int64_t kMaxBytes = int64_t{16} << 20;  // per thread; about 60,000 entries
  constexpr int64_t kMaxLists = 16;
  const TapSpec& taps = call.a.taps;
  const bool by_rows = taps.reduce == TapSpec::Reduce::kNone || call.shape.group == 1;
  const bool of_rows = taps.column_sums
                           ? !taps.column_max && taps.reduce != TapSpec::Reduce::kMax
                           : taps.column_max && (by_rows || taps.reduce == TapSpec::Reduce::kMax);
  return of_rows && !taps.square_sums && call.ListsPerHead() <= kMaxLists &&
         BlockSumsFloats(call) * int64_t{sizeof(float)} <= kMaxBytes;
}

// Adds up the column sums of blocks. The total does not depend on the order in which threads add:
// every addend is rounded such that the additions in double are exact.
class ColumnSums {
 public:
  explicit ColumnSums(const Call& call) : call_(call), longest_(call.LongestHead()) {
    const int64_t n_rows = call.a.n_queries * call.shape.group;
    // Doubles from 2^k to 2^(k+1) are multiples of 2^(k-52). Adding 1.5 * 2^k to a number and
    // subtracting it again rounds the number to such a multiple. Sums of these are exact up to
    // 2^(k+1), and no column sum exceeds the number of rows. (A block's sum below 2^(k-53) becomes
    // 0.)
    rounder_ = 1.5 * static_cast<double>(std::bit_ceil(static_cast<uint64_t>(n_rows)));
    thread_floats_ = BlockSumsFloats(call);
    ReserveParts(call.scratch.kept, thread_floats_, call.pool.n_threads());
  }

  BlockSums For(int thread) const {
    const TapSpec::Reduce reduce = call_.a.taps.reduce;
    float* kept = ScratchPart(call_.scratch.kept, thread_floats_, thread);
    return {.n_lists = static_cast<int>(call_.ListsPerHead()),
            .share = reduce == TapSpec::Reduce::kMean ? 1.0f / call_.shape.group : 1.0f,
            .largest = call_.a.taps.column_max,
            .sums = kept + KeptFloats(longest_),
            .weights = kept};
  }

  // Adds a block's sums, or takes its maxima, for the entries [0, n).
  void Add(int64_t head, const BlockSums& block, int64_t n) const {
    auto& mutexes = call_.scratch.sums_mutexes;
    const std::lock_guard lock(mutexes[static_cast<size_t>(head) % mutexes.size()]);
    for (int64_t list = 0; list < block.n_lists; ++list) {
      if (block.largest) {
        float* to = call_.a.found->column_max[head * block.n_lists + list].data();
        const float* from = block.sums + list * n;
        for (int64_t slot = 0; slot < n; ++slot) to[slot] = std::max(to[slot], from[slot]);
        continue;
      }
      double* to = call_.a.found->column_sums[head * block.n_lists + list].data();
      const float* from = block.sums + list * n;
      for (int64_t slot = 0; slot < n; ++slot) to[slot] += from[slot] + rounder_ - rounder_;
    }
  }

 private:
  const Call& call_;
  int64_t longest_;
  double rounder_;
  int64_t thread_floats_;
};

// Maxima and sums of all rows.
struct RowStatistics {
  const float* max;  // [head, row]
  const float* sum;  // [head, row]
};

// One pass over the keys for the taps of the queries starting at `first_query`. Adds column sums to
// `column_sums`.
void PassOverKeys(const Call& call, const TapSpec& taps, int64_t first_query,
                  std::vector<std::vector<double>>& column_sums, const TapKernels& kernels,
                  const RowStatistics& rows) {
  const HostAttention& a = call.a;
  const int64_t thread_floats = kernels.scratch_floats(call.shape, taps);
  call.ReserveThreads(thread_floats);
  const int64_t n_tiles = DivideUp(call.LongestHead(), kTapSlots);
  const int64_t n_rows = a.n_queries * call.shape.group;
  // Most queries see the first slots, so those come first.
  call.pool.ParallelFor(n_tiles * call.n_heads, [&](int64_t item, int thread) {
    const int64_t head = item % call.n_heads;
    const int64_t first = item / call.n_heads * kTapSlots;
    const HostHead& store = a.heads[head];
    const auto n = static_cast<int>(std::min<int64_t>(kTapSlots, store.n_slots - first));
    if (n <= 0) return;
    kernels.tap_slots(call.shape, {.q = call.Queries(head),
                                   .q_stride = a.q_stride,
                                   .keys = store.keys,
                                   .entries = store.entries,
                                   .n_entries = store.n_slots,
                                   .visible_before = store.n_slots - a.n_queries,
                                   .first_query = first_query,
                                   .end_query = a.n_queries,
                                   .first_slot = first,
                                   .n_slots = n,
                                   .max = rows.max + head * n_rows,
                                   .sum = rows.sum + head * n_rows,
                                   .taps = taps,
                                   .first_row_query = a.n_queries - a.found->n_last_rows,
                                   .sums = &column_sums,
                                   .found = a.found,
                                   .first_list = head * call.ListsPerHead(),
                                   .scratch = call.ThreadScratch(thread_floats, thread)});
  });
}

// The taps that need another pass over the keys.
void FillTaps(const Call& call, TapSpec taps, const TapKernels& kernels,
              const RowStatistics& rows) {
  const int64_t n_queries = call.a.n_queries;
  Taps& found = *call.a.found;
  if (taps.last_sums > 0) {
    PassOverKeys(call, {.column_sums = true, .reduce = taps.reduce}, n_queries - found.n_last_sums,
                 found.last_sums, kernels, rows);
    taps.last_sums = 0;
  }
  if (!taps.any()) return;
  PassOverKeys(call, taps, taps.sees_all() ? 0 : n_queries - found.n_last_rows, found.column_sums,
               kernels, rows);
}

}  // namespace

void AttendManyQueries(const Call& call, const PrefillKernels& kernels,
                       const TapKernels& tap_kernels) {
  const HostAttention& a = call.a;
  const AttentionShape& shape = call.shape;
  const int64_t n_rows = a.n_queries * shape.group;
  const int64_t n_blocks = DivideUp(n_rows, kBlockRows);
  // A job that keeps weights must process all entries of its rows.
  const bool may_keep = KeepsWeights(call);
  const Split split = may_keep && n_blocks * call.n_heads >= kFewItems ? WholeHeads(call)
                                                                       : SplitSlots(call, n_blocks);
  const bool merge = split.parts > 1;
  const Partials partials(call.scratch.partials, merge ? call.n_heads : 0, split.parts, n_rows,
                          shape.value_dim);
  // Maxima and sums of all rows, for the taps' second pass.
  float* max = Reserve(call.scratch.statistics, 2 * call.n_heads * n_rows);
  float* sum = max + call.n_heads * n_rows;
  const int64_t thread_floats = kernels.scratch_floats(shape);
  call.ReserveThreads(thread_floats);
  std::optional<ColumnSums> columns;
  if (may_keep && !merge) columns.emplace(call);

  // The last blocks see the most slots, so they come first.
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
    const BlockSums sums = columns ? columns->For(thread) : BlockSums{};
    kernels.attend_block(shape, {.q = call.Queries(head),
                                 .q_stride = a.q_stride,
                                 .keys = store.keys,
                                 .values = store.values,
                                 .entries = store.entries,
                                 .first_row = row,
                                 .n_rows = block_rows,
                                 .visible_before = store.n_slots - a.n_queries,
                                 .first_slot = part * split.slots,
                                 .end_slot = end,
                                 .max = p.max,
                                 .sum = p.sum,
                                 .out = out,
                                 .divide = !merge,
                                 .columns = sums,
                                 .scratch = call.ThreadScratch(thread_floats, thread)});
    if (columns) columns->Add(head, sums, end);
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
  TapSpec left = a.taps;
  if (columns) left.column_sums = left.column_max = false;
  if (left.any()) FillTaps(call, left, tap_kernels, {max, sum});
}

}  // namespace winnow::kernels::cpu
