#include "compression/methods/ems_classes.h"

#include <algorithm>
#include <functional>

namespace winnow::compression::methods::ems {

TableRoom::TableRoom(const LayerCall& call, int first_head, int n_heads)
    : scratch_(call.scratch), first_head_(first_head) {
  for (int head = first_head; head < first_head + n_heads; ++head) {
    n_slots_ = std::max(n_slots_, static_cast<size_t>(call.n_slots(head)));
    n_rows_ = std::max(n_rows_, static_cast<size_t>(call.cache.n_rows(call.layer, head)));
  }
  const auto n = static_cast<size_t>(n_heads);
  if (scratch_.numbers.size() < n * (n_slots_ + n_rows_)) {
    scratch_.numbers.resize(n * (n_slots_ + n_rows_));
  }
  if (scratch_.indices.size() < n * Indices()) scratch_.indices.resize(n * Indices());
}

ClassTable TableRoom::Of(int head) const {
  const auto place = static_cast<size_t>(head - first_head_);
  const std::span<double> numbers =
      std::span(scratch_.numbers).subspan(place * (n_slots_ + n_rows_), n_slots_ + n_rows_);
  const std::span<int32_t> indices =
      std::span(scratch_.indices).subspan(place * Indices(), Indices());
  ClassTable table;
  table.scores = numbers.first(n_slots_);
  table.importance = numbers.subspan(n_slots_);
  table.n_members = indices.first(n_rows_);
  table.member = indices.subspan(n_rows_, n_rows_);
  table.oldest = indices.subspan(2 * n_rows_, n_rows_);
  table.classes = indices.subspan(3 * n_rows_);
  return table;
}

void Tabulate(const LayerCall& call, int head, Attention attention, ClassTable& table) {
  const Scores score_of(call, head, attention);
  const auto n_slots = static_cast<Slot>(call.n_slots(head));
  for (Slot slot = 0; slot < n_slots; ++slot) {
    table.scores[static_cast<size_t>(slot)] = score_of[slot];
  }
  std::ranges::fill(table.importance, 0.0);
  std::ranges::fill(table.n_members, 0);
  const std::span<const Slot> rows = call.cache.rows(call.layer, head);
  int32_t rank = 0;
  for (const Slot slot : call.order(head).first(static_cast<size_t>(table.n_all))) {
    const auto row = static_cast<size_t>(rows[static_cast<size_t>(slot)]);
    table.oldest[row] = table.n_members[row] == 0 ? rank : table.oldest[row];
    ++table.n_members[row];
    ++rank;
    table.member[row] = slot;
    table.importance[row] =
        std::max(table.importance[row], table.scores[static_cast<size_t>(slot)]);
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
