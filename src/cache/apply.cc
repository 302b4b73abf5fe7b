// How plans are carried out: merging rows, sharing them, evicting slots and what only they used.
#include <algorithm>

#include "cache/cache_data.h"

namespace winnow::cache {
namespace {

// Fewer freed rows than this stay with the cache.
constexpr int64_t kFewRows = 32;

}  // namespace

void Cache::Apply(const Plan& plan) {
  Data& data = *data_;
  LayerData& layer = data.layer(plan.layer);
  WINNOW_CHECK(plan.heads.size() == layer.heads.size());
  for (size_t head = 0; head < layer.heads.size(); ++head) {
    const HeadPlan& wanted = plan.heads[head];
    if (!wanted.merges.empty()) data.Merge(layer, head, wanted);
    HeadIndex& index = layer.heads[head];
    WINNOW_CHECK(wanted.shares.empty() || data.config.shared_rows);
    layer.rows_are_slots &= wanted.shares.empty();
    for (const HeadPlan::Share& share : wanted.shares) {
      WINNOW_CHECK(share.slot >= 0 && static_cast<size_t>(share.slot) < index.n_slots() &&
                   share.row >= 0 && share.row < layer.stores[head].n_slots);
      ++index.n_sharing[static_cast<size_t>(share.row)];
      data.LeaveRow(index, share.slot);
      index.rows[static_cast<size_t>(share.slot)] = share.row;
      index.factors[static_cast<size_t>(share.slot)] = share.factor;
    }
    if (!wanted.evict.empty()) data.Evict(layer, head, wanted.evict);
    if (data.config.shared_rows) data.FreeRows(layer, head);
  }
}

void Cache::Data::Merge(LayerData& layer, size_t head, const HeadPlan& plan) {
  sources.clear();
  key_weights.clear();
  value_weights.clear();
  for (const HeadPlan::Source& source : plan.sources) {
    WINNOW_CHECK(source.row >= 0 && source.row < layer.stores[head].n_slots);
    sources.push_back(source.row);
    key_weights.push_back(source.key_weight);
    value_weights.push_back(source.value_weight);
  }
  key_sums.clear();
  value_sums.clear();
  size_t first = 0;
  for (const HeadPlan::Merge& merge : plan.merges) {
    const auto n = static_cast<size_t>(merge.n_sources);
    WINNOW_CHECK(merge.into >= 0 && merge.into < layer.stores[head].n_slots &&
                 first + n <= sources.size());
    const std::span<const int32_t> rows = std::span(sources).subspan(first, n);
    key_sums.push_back({merge.into, rows, std::span(key_weights).subspan(first, n)});
    value_sums.push_back({merge.into, rows, std::span(value_weights).subspan(first, n)});
    first += n;
  }
  WINNOW_CHECK(first == sources.size());
  backend->SumRows(Keys(layer, head), key_sums);
  backend->SumRows(Values(layer, head), value_sums);
}

// Removes slots; without shared rows the rows of the same numbers too.
void Cache::Data::Evict(LayerData& layer, size_t head, std::span<const Slot> slots) {
  HeadIndex& index = layer.heads[head];
  const size_t n_left = index.n_slots() - slots.size();
  if (config.shared_rows) {
    layer.rows_are_slots = false;
    for (const Slot slot : slots) LeaveRow(index, slot);
  }
  if (slots.size() == 1) {
    const Slot slot = slots[0];
    slot_moves.FillHole(index.n_slots(), slot);
    const int32_t rank = index.ranks[static_cast<size_t>(slot)];
    index.order.erase(index.order.begin() + rank);
    for (int32_t& other : index.ranks) other -= other > rank ? 1 : 0;
    slot_moves.Carry(index.ranks, n_left);
    if (static_cast<size_t>(slot) < n_left) {
      index.order[static_cast<size_t>(index.ranks[static_cast<size_t>(slot)])] = slot;
    }
  } else {
    slot_moves.FillHoles(index.n_slots(), slots);
    index.ranks.resize(n_left);
    size_t rank = 0;
    for (const Slot slot : index.order) {
      const Slot place = slot_moves.place_of[static_cast<size_t>(slot)];
      if (place == kGone) continue;
      index.ranks[static_cast<size_t>(place)] = static_cast<int32_t>(rank);
      index.order[rank++] = place;
    }
    index.order.resize(rank);
  }
  slot_moves.Carry(index.positions, n_left);
  for (std::vector<double>& column : index.columns) slot_moves.Carry(column, n_left);
  if (config.shared_rows) {
    slot_moves.Carry(index.rows, n_left);
    slot_moves.Carry(index.factors, n_left);
    return;
  }
  MoveRows(layer, head, slot_moves);
  ShrinkRows(layer, head, static_cast<int64_t>(n_left));
}

// A slot no longer names its row: dropped_rows are those that may have become free.
void Cache::Data::LeaveRow(HeadIndex& index, Slot slot) {
  WINNOW_CHECK(slot >= 0 && static_cast<size_t>(slot) < index.n_slots());
  const Slot row = index.rows[static_cast<size_t>(slot)];
  if (--index.n_sharing[static_cast<size_t>(row)] == 0) dropped_rows.push_back(row);
}

// Removes the rows that no slot names any more.
void Cache::Data::FreeRows(LayerData& layer, size_t head) {
  HeadIndex& index = layer.heads[head];
  // A row may have been left, taken and left again.
  std::sort(dropped_rows.begin(), dropped_rows.end());
  dropped_rows.erase(std::unique(dropped_rows.begin(), dropped_rows.end()), dropped_rows.end());
  std::erase_if(dropped_rows,
                [&](int32_t row) { return index.n_sharing[static_cast<size_t>(row)] > 0; });
  if (dropped_rows.empty()) return;
  const auto n_rows = static_cast<size_t>(layer.stores[head].n_slots);
  const size_t n_left = n_rows - dropped_rows.size();
  if (dropped_rows.size() == 1) {
    row_moves.FillHole(n_rows, dropped_rows[0]);
    // The mover is nearly always the newest entry's.
    const auto last = static_cast<Slot>(n_left);
    int32_t n_naming = last == dropped_rows[0] ? 0 : index.n_sharing[n_left];
    for (size_t slot = index.rows.size(); n_naming > 0;) {
      if (index.rows[--slot] != last) continue;
      index.rows[slot] = dropped_rows[0];
      --n_naming;
    }
  } else {
    row_moves.FillHoles(n_rows, dropped_rows);
    for (Slot& row : index.rows) row = row_moves.place_of[static_cast<size_t>(row)];
  }
  dropped_rows.clear();
  row_moves.Carry(index.n_sharing, n_left);
  MoveRows(layer, head, row_moves);
  ShrinkRows(layer, head, static_cast<int64_t>(n_left));
}

void Cache::Data::MoveRows(LayerData& layer, size_t head, const Moves& moves) {
  if (moves.from.empty()) return;
  const kernels::HeadStore& store = layer.stores[head];
  backend->MoveRows(*memory, store.keys_offset_bytes, key_row_bytes, moves.from, moves.to);
  backend->MoveRows(*memory, store.values_offset_bytes, value_row_bytes, moves.from, moves.to);
}

// Forgets the rows from n_rows on. Their pages go back to the system, unless they are so few that
// the next tokens take them again.
void Cache::Data::ShrinkRows(LayerData& layer, size_t head, int64_t n_rows) {
  kernels::HeadStore& store = layer.stores[head];
  const int64_t n_freed = store.n_slots - n_rows;
  store.n_slots = n_rows;
  if (n_freed < kFewRows) return;
  shrunk = true;
  backend->Release(*memory, store.keys_offset_bytes + n_rows * key_row_bytes,
                   n_freed * key_row_bytes);
  backend->Release(*memory, store.values_offset_bytes + n_rows * value_row_bytes,
                   n_freed * value_row_bytes);
  layer.heads[head].GiveBack();
}

void Cache::Truncate(Position position) {
  std::vector<Slot> dropped;
  for (LayerData& layer : data_->layers) {
    for (size_t head = 0; head < layer.heads.size(); ++head) {
      const std::vector<Position>& positions = layer.heads[head].positions;
      dropped.clear();
      for (size_t slot = 0; slot < positions.size(); ++slot) {
        if (positions[slot] >= position) dropped.push_back(static_cast<Slot>(slot));
      }
      if (dropped.empty()) continue;
      data_->Evict(layer, head, dropped);
      if (data_->config.shared_rows) data_->FreeRows(layer, head);
    }
  }
}

}  // namespace winnow::cache
