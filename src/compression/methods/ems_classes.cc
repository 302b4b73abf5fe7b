#include "compression/methods/ems_classes.h"

#include <algorithm>
#include <functional>

#include "base/list_stride.h"

namespace winnow::compression::methods::ems {

TableRoom::TableRoom(const LayerCall& call, int first_head, int n_heads)
    : scratch_(call.scratch), first_head_(first_head) {
  for (int head = first_head; head < first_head + n_heads; ++head) {
    n_rows_ = std::max(n_rows_, static_cast<size_t>(call.cache.n_rows(call.layer, head)));
  }
  stride_ = static_cast<size_t>(ListStride<int32_t>(static_cast<int64_t>(n_rows_)));
  const auto n = static_cast<size_t>(n_heads);
  if (scratch_.numbers.size() < n * n_rows_) scratch_.numbers.resize(n * n_rows_);
  if (scratch_.indices.size() < n * Indices()) scratch_.indices.resize(n * Indices());
}

ClassTable TableRoom::Of(int head) const {
  const auto place = static_cast<size_t>(head - first_head_);
  const auto indices = [&](size_t i) {
    return std::span(scratch_.indices).subspan(place * Indices() + i * stride_, n_rows_);
  };
  ClassTable table;
  table.importance = std::span(scratch_.numbers).subspan(place * n_rows_, n_rows_);
  table.n_members = indices(0);
  table.oldest = indices(1);
  table.newest = indices(2);
  table.classes = indices(3);
  return table;
}

void Tabulate(const LayerCall& call, int head, Attention attention, ClassTable& table) {
  table.scores = Scores(call, head, attention);
  const std::span<const Slot> rows = call.cache.rows(call.layer, head);
  const std::span<const int32_t> ranks = call.cache.ranks(call.layer, head);
  std::ranges::fill(table.n_members, 0);
  // By slot, not by age: all that is known of the members lies in this order.
  for (size_t slot = 0; slot < ranks.size(); ++slot) {
    const int32_t rank = ranks[slot];
    if (rank >= table.n_all) continue;
    const auto row = static_cast<size_t>(rows[slot]);
    const double score = table.scores[static_cast<Slot>(slot)];
    if (table.n_members[row]++ == 0) {
      table.importance[row] = score;
      table.oldest[row] = table.newest[row] = rank;
    } else {
      table.importance[row] = std::max(table.importance[row], score);
      table.oldest[row] = std::min(table.oldest[row], rank);
      table.newest[row] = std::max(table.newest[row], rank);
    }
  }
  size_t n_classes = 0;
  for (size_t row = 0; row < table.n_members.size(); ++row) {
    // Written in any case, because whether it counts cannot be foretold.
    table.classes[n_classes] = static_cast<int32_t>(row);
    n_classes += table.n_members[row] == 0 ? 0 : 1;
  }
  table.classes = table.classes.first(n_classes);
}

void TakeLeast(ClassTable& table, int n_protect) {
  // Takes the first one out, in the order of `before`.
  const auto take = [&](std::span<int32_t>& classes, auto before) {
    const auto taken = std::ranges::min_element(classes, [&](int32_t a, int32_t b) {
      const double of_a = table.importance[static_cast<size_t>(a)];
      const double of_b = table.importance[static_cast<size_t>(b)];
      if (of_a != of_b) return before(of_a, of_b);
      return table.oldest[static_cast<size_t>(a)] < table.oldest[static_cast<size_t>(b)];
    });
    const int32_t row = *taken;
    std::copy(taken + 1, classes.end(), taken);
    classes = classes.first(classes.size() - 1);
    return row;
  };
  table.least = take(table.classes, std::less<double>());
  table.open = table.classes;
  for (int i = 0; i < n_protect && !table.open.empty(); ++i) {
    take(table.open, std::greater<double>());
  }
}

}  // namespace winnow::compression::methods::ems
