// Carrying out plans: merging rows, sharing them, evicting slots and the rows that only they used.
#include <algorithm>

#include "cache/cache_data.h"

namespace winnow::cache {

void Cache::Apply(const Plan& plan) {
  Data& data = *data_;
  LayerData& layer = data.layer(plan.layer);
  layer.index.PrepareFor(plan);
  for (size_t head = 0; head < layer.heads.size(); ++head) {
    const HeadPlan& wanted = plan.heads[head];
    if (!wanted.merges.empty()) data.placement->Merge(plan.layer, head, wanted);
    HeadState& state = layer.heads[head];
    if (!wanted.rewrite.empty()) {
      WINNOW_CHECK(!data.config.storage.shared_rows);
      data.placement->WriteValues(plan.layer, head, wanted.rewrite, wanted.new_values);
    }
    WINNOW_CHECK(wanted.biases.empty() || data.config.storage.bias_column >= 0);
    for (const HeadPlan::Bias& bias : wanted.biases) {
      layer.has_biases = true;
      const auto column = static_cast<size_t>(data.config.storage.bias_column);
      state.columns.halves[column].at(static_cast<size_t>(bias.slot)) = Half(bias.bias);
    }
    WINNOW_CHECK(wanted.shares.empty() || data.config.storage.shared_rows);
    layer.rows_are_slots &= wanted.shares.empty();
    for (const HeadPlan::Share& share : wanted.shares) {
      WINNOW_CHECK(share.slot >= 0 && static_cast<size_t>(share.slot) < state.table.size() &&
                   share.row >= 0 && share.row < data.placement->n_rows(plan.layer, head));
      ++state.n_sharing[static_cast<size_t>(share.row)];
      data.ReleaseRow(state, share.slot);
      state.table.Set(share.slot, share.row, share.factor);
    }
    if (!wanted.evict.empty()) data.EvictFromHead(plan.layer, head, wanted.evict);
    if (data.config.storage.shared_rows) data.FreeRows(plan.layer, head);
  }
}

// Removes slots, and without shared rows also the rows of the same numbers. If heads share a list,
// all of them evict the same slots, and the moves of the first apply to all.
void Cache::Data::EvictFromHead(int layer_index, size_t head, std::span<const Slot> slots) {
  LayerData& layer = layers[static_cast<size_t>(layer_index)];
  HeadState& state = layer.heads[head];
  if (config.storage.shared_rows) {
    layer.rows_are_slots = false;
    for (const Slot slot : slots) ReleaseRow(state, slot);
  }
  if (head == 0 || !layer.index.shared()) layer.index.Evict(head, slots, slot_moves, ranks);
  const size_t n_left = layer.index.head(head).size();
  state.Move(slot_moves, n_left);
  if (config.storage.shared_rows) return;
  placement->Move(layer_index, head, slot_moves);
  if (placement->Shrink(layer_index, head, static_cast<int64_t>(n_left))) {
    state.ShrinkToFit();
    layer.index.ShrinkToFit(head);
  }
}

// Detaches a slot from its row. Adds the row to dropped_rows if it was the last slot.
void Cache::Data::ReleaseRow(HeadState& head, Slot slot) {
  WINNOW_CHECK(slot >= 0 && static_cast<size_t>(slot) < head.table.size());
  const Slot row = head.table.rows()[static_cast<size_t>(slot)];
  if (--head.n_sharing[static_cast<size_t>(row)] == 0) dropped_rows.push_back(row);
}

// Removes the rows in dropped_rows that have no slots.
void Cache::Data::FreeRows(int layer_index, size_t head) {
  LayerData& layer = layers[static_cast<size_t>(layer_index)];
  HeadState& state = layer.heads[head];
  // A row may have been released, shared again and released again.
  std::sort(dropped_rows.begin(), dropped_rows.end());
  dropped_rows.erase(std::unique(dropped_rows.begin(), dropped_rows.end()), dropped_rows.end());
  std::erase_if(dropped_rows,
                [&](int32_t row) { return state.n_sharing[static_cast<size_t>(row)] > 0; });
  if (dropped_rows.empty()) return;
  const auto n_rows = static_cast<size_t>(placement->n_rows(layer_index, head));
  const size_t n_left = n_rows - dropped_rows.size();
  if (dropped_rows.size() == 1) {
    row_moves.FillHole(n_rows, dropped_rows[0]);
    // The row that moves is nearly always the newest entry's: search from the last slot.
    const auto last = static_cast<Slot>(n_left);
    int32_t n_naming = last == dropped_rows[0] ? 0 : state.n_sharing[n_left];
    const SlotRows rows = state.table.rows();
    for (size_t slot = rows.size(); n_naming > 0;) {
      if (rows[--slot] != last) continue;
      state.table.SetRow(static_cast<Slot>(slot), dropped_rows[0]);
      --n_naming;
    }
  } else {
    row_moves.FillHoles(n_rows, dropped_rows);
    const SlotRows rows = state.table.rows();
    for (size_t slot = 0; slot < rows.size(); ++slot) {
      state.table.SetRow(static_cast<Slot>(slot),
                         row_moves.place_of[static_cast<size_t>(rows[slot])]);
    }
  }
  state.table.Narrow(static_cast<int64_t>(n_left));
  dropped_rows.clear();
  row_moves.ApplyMoves(state.n_sharing, n_left);
  placement->Move(layer_index, head, row_moves);
  if (placement->Shrink(layer_index, head, static_cast<int64_t>(n_left))) {
    state.ShrinkToFit();
    layer.index.ShrinkToFit(head);
  }
}

// Frees buffers that a long prompt left, so that they are not kept for short calls.
void Cache::Data::TrimWorkingMemory() {
  const size_t max_entries = MaxEntries();
  views.Trim(max_entries);
  constexpr size_t kSlack = 1024;
  const auto trim = [&](std::vector<int32_t>& values) {
    if (values.capacity() > 2 * max_entries + kSlack) std::vector<int32_t>().swap(values);
  };
  for (Moves* moves : {&slot_moves, &row_moves}) {
    trim(moves->place_of);
    trim(moves->from);
    trim(moves->to);
  }
  trim(ranks);
  trim(dropped_rows);
}

void Cache::Truncate(Position position) {
  for (int l = 0; l < data_->config.shape.n_layers; ++l) TruncateLayer(l, position);
}

void Cache::TruncateLayer(int layer_index, Position position) {
  std::vector<Slot> dropped;
  LayerData& layer = data_->layer(layer_index);
  for (size_t head = 0; head < layer.heads.size(); ++head) {
    // If heads share a list, the first head determines the slots for all.
    if (head == 0 || !layer.index.shared()) layer.index.head(head).FindFrom(position, dropped);
    if (dropped.empty()) continue;
    data_->EvictFromHead(layer_index, head, dropped);
    if (data_->config.storage.shared_rows) data_->FreeRows(layer_index, head);
  }
  layer.index.ShareIfEmpty();
}

}  // namespace winnow::cache
