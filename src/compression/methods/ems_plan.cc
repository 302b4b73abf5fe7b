#include "compression/methods/ems_plan.h"

#include "compression/numbers.h"

namespace winnow::compression::methods::ems {

void Share(const LayerCall& call, int head, Slot slot, Slot row, double length,
           cache::HeadPlan& plan) {
  const auto at = static_cast<size_t>(slot);
  const float factor = Factor(length);
  if (call.cache.rows(call.layer, head)[at] == row &&
      call.cache.factors(call.layer, head)[at] == factor) {
    return;
  }
  plan.shares.push_back({.slot = slot, .row = row, .factor = factor});
}

void AddSource(Slot row, double length, double weight, cache::HeadPlan& plan) {
  ++plan.merges.back().n_sources;
  plan.sources.push_back({.row = row,
                          .key_weight = static_cast<float>(length > 0 ? weight / length : weight),
                          .value_weight = static_cast<float>(weight)});
}

void EvictLowest(const ClassTable& table, cache::HeadPlan& plan) {
  if (table.n_members[static_cast<size_t>(table.lowest)] == 1) {
    plan.evict.push_back(table.OldestSlot(table.lowest));
    return;
  }
  ForMembers(table, table.lowest, table.lowest,
             [&](size_t rank, int32_t) { plan.evict.push_back(table.order[rank]); });
}

void MergeLowest(const LayerCall& call, int head, const ClassTable& table, cache::HeadPlan& plan) {
  const int32_t from = table.lowest;
  const int32_t into = table.joined();
  const kernels::AttentionSums sums = Sums(call, head);
  double from_weight = 0;
  double into_weight = 0;
  ForMembers(table, from, into, [&](size_t rank, int32_t row) {
    const Slot slot = table.order[rank];
    (row == from ? from_weight : into_weight) += Local(sums, slot);
    const double of_row = row == from ? table.lowest_length : table.nearest_length;
    const double length =
        IsKeyItself(call, head, slot)
            ? of_row
            : double{call.cache.factors(call.layer, head)[static_cast<size_t>(slot)]};
    Share(call, head, slot, into, length, plan);
  });
  const double sum = from_weight + into_weight;
  plan.merges.push_back({.into = into, .n_sources = 0});
  AddSource(from, table.lowest_length, Fraction(from_weight, sum, 0.5), plan);
  AddSource(into, table.nearest_length, Fraction(into_weight, sum, 0.5), plan);
}

}  // namespace winnow::compression::methods::ems
