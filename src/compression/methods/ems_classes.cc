#include "compression/methods/ems_classes.h"

#include <algorithm>
#include <bit>
#include <limits>

#include "base/list_stride.h"

namespace winnow::compression::methods::ems {
namespace {

// Walks from the newest member to the oldest, so that the last rank written for a class is its
// oldest.
template <class Rows>
void Walk(const Rows& rows, ClassTable& table) {
  ClassTable::Member weakest = table.weakest;
  for (int64_t rank = table.n_all - 1; rank >= table.n_sinks; --rank) {
    const auto slot = static_cast<size_t>(table.order[static_cast<size_t>(rank)]);
    const auto row = static_cast<size_t>(rows[slot]);
    const float score = table.scores[slot];
    table.importance[row] = std::max(table.importance[row], score);
    table.next[static_cast<size_t>(rank)] = table.oldest[row];
    table.oldest[row] = static_cast<int32_t>(rank);
    if (score <= weakest.score && table.n_members[row] > 1) {
      weakest = {.rank = static_cast<int32_t>(rank), .score = score};
    }
  }
  table.weakest = weakest;
}

}  // namespace

TableBuffers::TableBuffers(const LayerCall& call, int first_head, int n_heads)
    : scratch_(call.scratch), first_head_(first_head) {
  int64_t n_slots = 0;
  int64_t n_rows = 0;
  for (int head = first_head; head < first_head + n_heads; ++head) {
    n_slots = std::max(n_slots, call.n_slots(head));
    n_rows = std::max(n_rows, call.cache.n_rows(call.layer, head));
  }
  slot_stride_ = static_cast<size_t>(ListStride<float>(n_slots));
  row_stride_ = static_cast<size_t>(ListStride<int32_t>(n_rows));
  const auto n = static_cast<size_t>(n_heads);
  n_key_ = static_cast<size_t>(call.cache.config().shape.key_dim);
  const size_t n_floats = n_key_ + n * Floats();
  if (scratch_.floats.size() < n_floats) scratch_.floats.resize(n_floats);
  if (scratch_.indices.size() < n * Indices()) scratch_.indices.resize(n * Indices());
}

ClassTable TableBuffers::MakeTable(const LayerCall& call, int head, const Protect& regions) const {
  const auto place = static_cast<size_t>(head - first_head_);
  const auto n_slots = static_cast<size_t>(call.n_slots(head));
  const auto n_rows = static_cast<size_t>(call.cache.n_rows(call.layer, head));
  const std::span<float> floats =
      std::span(scratch_.floats).subspan(n_key_ + place * Floats(), Floats());
  const std::span<int32_t> indices =
      std::span(scratch_.indices).subspan(place * Indices(), Indices());
  ClassTable table;
  table.scores = floats.first(n_slots);
  table.importance = floats.subspan(slot_stride_, n_rows);
  table.oldest = indices.first(n_rows);
  table.classes = indices.subspan(row_stride_, n_rows);
  table.next = indices.subspan(2 * row_stride_, n_slots);
  table.order = call.order(head);
  table.rows = call.cache.rows(call.layer, head);
  table.n_members = call.cache.n_sharing(call.layer, head);
  table.n_old = Members(call, head);
  table.n_all = table.n_old + (call.n_slots(head) - table.n_old > regions.recent ? 1 : 0);
  table.n_sinks = regions.sinks;
  return table;
}

void Tabulate(const LayerCall& call, int head, const Factors& factors, ClassTable& table) {
  call.backend.ScoreAttention(Sums(call, head), factors.global, factors.local, table.scores);
  std::ranges::fill(table.importance, -1.0f);
  std::ranges::fill(table.oldest, ClassTable::kNone);
  if (table.rows.rows().empty()) {
    Walk(table.rows.short_rows(), table);
  } else {
    Walk(table.rows.rows(), table);
  }
  size_t n_classes = 0;
  for (size_t row = 0; row < table.importance.size(); ++row) {
    // Written unconditionally: a branch would be mispredicted often.
    table.classes[n_classes] = static_cast<int32_t>(row);
    n_classes += table.importance[row] < 0 ? 0 : 1;
  }
  table.classes = table.classes.first(n_classes);
}

void PopLeastImportant(ClassTable& table, int64_t n_protect) {
  // Removes the class with the lowest key.
  const auto take = [](std::span<int32_t>& classes, auto key) {
    size_t taken = 0;
    uint64_t lowest = std::numeric_limits<uint64_t>::max();
    for (size_t i = 0; i < classes.size(); ++i) {
      const uint64_t of_class = key(static_cast<size_t>(classes[i]));
      if (of_class >= lowest) continue;
      lowest = of_class;
      taken = i;
    }
    const int32_t row = classes[taken];
    std::copy(classes.begin() + static_cast<ptrdiff_t>(taken) + 1, classes.end(),
              classes.begin() + static_cast<ptrdiff_t>(taken));
    classes = classes.first(classes.size() - 1);
    return row;
  };
  // Importances are not negative, so the order of their bits is that of the floats. Of equally
  // important classes the one with the oldest member comes first.
  const auto key = [&](size_t row, uint32_t importance) {
    return uint64_t{importance} << 32 | static_cast<uint32_t>(table.oldest[row]);
  };
  const auto importance = [&](size_t row) {
    return std::bit_cast<uint32_t>(table.importance[row]);
  };
  table.lowest = take(table.classes, [&](size_t row) { return key(row, importance(row)); });
  table.open = table.classes;
  for (int64_t i = 0; i < n_protect && !table.open.empty(); ++i) {
    take(table.open, [&](size_t row) { return key(row, ~importance(row)); });
  }
}

ClassTable::Member WeakestAfterMerge(const ClassTable& table) {
  ClassTable::Member weakest = table.weakest;
  // A member that was alone in one of the two classes is not alone after the merge, so it may be
  // evicted.
  for (const int32_t row : {table.lowest, table.joined()}) {
    const int32_t rank = table.oldest[static_cast<size_t>(row)];
    if (table.n_members[static_cast<size_t>(row)] > 1 || rank >= table.n_old) continue;
    const float score = table.scores[static_cast<size_t>(table.OldestSlot(row))];
    if (score < weakest.score || (score == weakest.score && rank < weakest.rank)) {
      weakest = {.rank = rank, .score = score};
    }
  }
  return weakest;
}

}  // namespace winnow::compression::methods::ems
