// A layer as bytes:
//   keys rotated, rows are slots           one byte each
//   the method's numbers of the layer      a list (base/bytes.h)
//   lists of entries                       their number (1: all heads share it), then for each
//     positions                            by rank, a list
//     order                                slots by rank, a list; empty: slots are ranks
//   for each head
//     the method's numbers                 a list
//     the method's columns                 a value per slot: doubles, floats, halves
//     rows, factors                        with shared rows: lists, by slot
//     stored rows                          their number, keys, values
#include <algorithm>
#include <string>
#include <utility>

#include "base/bytes.h"
#include "cache/cache.h"
#include "cache/cache_data.h"

namespace winnow::cache {
namespace {

Error FormatError(int layer, const std::string& what) {
  return Error{"layer " + std::to_string(layer) + ": " + what};
}

bool IsPermutation(std::span<const Slot> order) {
  std::vector<bool> seen(order.size());
  for (const Slot slot : order) {
    if (slot < 0 || static_cast<size_t>(slot) >= order.size() || seen[static_cast<size_t>(slot)]) {
      return false;
    }
    seen[static_cast<size_t>(slot)] = true;
  }
  return true;
}

// Reads a layer, and checks every field before using it.
class LayerReader {
 public:
  LayerReader(const CacheConfig& config, int layer, std::span<const std::byte> bytes, Position end)
      : config_(config), layer_(layer), end_(end), bytes_(bytes) {}

  Result<void> ReadFlags(LayerData& data) {
    uint8_t rotated = 0;
    uint8_t rows_are_slots = 0;
    if (!bytes_.Get(rotated) || !bytes_.Get(rows_are_slots)) return Short();
    if (rotated > 1 || rows_are_slots > 1 ||
        (rotated == 0 && config_.storage.positions == PositionMode::kOriginal) ||
        (rows_are_slots == 0 && !config_.storage.shared_rows) ||
        // Rows are shared only after Unrotate.
        (rotated != 0 && rows_are_slots == 0 &&
         config_.storage.positions != PositionMode::kOriginal)) {
      return FormatError(layer_, "flags that this cache cannot have");
    }
    data.keys_rotated = rotated != 0;
    data.rows_are_slots = rows_are_slots != 0;
    return ReadNumbers(data.numbers);
  }

  Result<void> ReadLists(LayerIndex& index) {
    uint32_t n_lists = 0;
    if (!bytes_.Get(n_lists)) return Short();
    if (n_lists != 1 && n_lists != index.n_heads()) {
      return FormatError(layer_, std::to_string(n_lists) + " lists of entries for " +
                                     std::to_string(index.n_heads()) + " heads");
    }
    std::vector<EntryList> lists(n_lists);
    std::vector<Position> positions;
    std::vector<Slot> order;
    for (EntryList& list : lists) {
      if (!bytes_.GetList(positions) || !bytes_.GetList(order)) return Short();
      if (static_cast<int64_t>(positions.size()) > config_.capacity) {
        Error error =
            FormatError(layer_, std::to_string(positions.size()) + " entries in a cache of " +
                                    std::to_string(config_.capacity));
        error.code = ErrorCode::kInvalid;
        return error;
      }
      const bool ascend =
          std::ranges::adjacent_find(positions, std::greater_equal<>()) == positions.end();
      if (!ascend || (!positions.empty() && (positions.front() < 0 || positions.back() >= end_))) {
        return FormatError(layer_, "positions that are not ascending or outside the text");
      }
      if (!order.empty() && (order.size() != positions.size() || !IsPermutation(order))) {
        return FormatError(layer_, "an order that does not name every slot once");
      }
      list.Assign(positions, order);
    }
    index.Assign(std::move(lists));
    return {};
  }

  Result<void> ReadHead(size_t head, const LayerData& layer, HeadState& state,
                        Placement& placement) {
    const size_t n = layer.index.head(head).size();
    WINNOW_TRY(ReadNumbers(state.numbers));
    bool enough = true;
    state.columns.ForEach([&](auto& column) {
      using T = typename std::remove_reference_t<decltype(column)>::value_type;
      // Check that the bytes exist before allocating memory for them.
      std::span<const std::byte> values;
      enough = enough && bytes_.GetRaw(n * sizeof(T), values);
      if (!enough || n == 0) return;
      column.resize(n);
      std::memcpy(static_cast<void*>(column.data()), values.data(), values.size());
    });
    if (!enough) return Short();
    uint64_t n_rows = n;
    std::vector<Slot> rows;
    std::vector<uint16_t> factors;
    if (config_.storage.shared_rows && (!bytes_.GetList(rows) || !bytes_.GetList(factors)))
      return Short();
    if (!bytes_.Get(n_rows)) return Short();
    if (n_rows > n || (!config_.storage.shared_rows && n_rows != n)) {
      return FormatError(
          layer_, std::to_string(n_rows) + " stored rows for " + std::to_string(n) + " entries");
    }
    if (config_.storage.shared_rows) {
      if (rows.size() != n || factors.size() != n)
        return FormatError(layer_, "row and factor lists do not match the entries");
      WINNOW_TRY(AssignRows(layer.rows_are_slots, rows, factors, n_rows, state));
    }
    std::span<const std::byte> keys;
    std::span<const std::byte> values;
    if (!bytes_.GetRaw(n_rows * static_cast<size_t>(placement.key_row_bytes(layer_)), keys) ||
        !bytes_.GetRaw(n_rows * static_cast<size_t>(placement.value_row_bytes(layer_)), values)) {
      return Short();
    }
    placement.AssignRows(layer_, head, static_cast<int64_t>(n_rows), keys, values);
    return {};
  }

  Result<void> Finish() const {
    if (bytes_.at_end()) return {};
    return FormatError(layer_, "more bytes than its entries need");
  }

 private:
  Error Short() const { return FormatError(layer_, "fewer bytes than its entries need"); }

  Result<void> ReadNumbers(std::vector<double>& numbers) {
    std::vector<double> read;
    if (!bytes_.GetList(read)) return Short();
    if (read.size() != numbers.size())
      return FormatError(layer_, "state numbers of another method");
    numbers = std::move(read);
    return {};
  }

  // Checks that every row has a slot, and that row i is slot i with factor 1 if rows_are_slots.
  Result<void> AssignRows(bool rows_are_slots, std::span<const Slot> rows,
                          std::span<const uint16_t> factors, uint64_t n_rows,
                          HeadState& state) const {
    constexpr uint16_t kOne = 0x3C00;
    std::vector<int32_t> n_sharing(static_cast<size_t>(n_rows));
    std::vector<Half> halves(factors.size());
    bool fit = true;
    for (size_t slot = 0; slot < rows.size(); ++slot) {
      const Slot row = rows[slot];
      fit &= row >= 0 && static_cast<uint64_t>(row) < n_rows;
      fit &= !rows_are_slots || (row == static_cast<Slot>(slot) && factors[slot] == kOne);
      if (!fit) break;
      ++n_sharing[static_cast<size_t>(row)];
      halves[slot].bits = factors[slot];
    }
    if (!fit || std::ranges::find(n_sharing, 0) != n_sharing.end()) {
      return FormatError(layer_, "row numbers or factors out of range, or rows without an entry");
    }
    state.table.Assign(rows, halves, static_cast<int64_t>(n_rows));
    state.n_sharing = std::move(n_sharing);
    return {};
  }

  const CacheConfig& config_;
  int layer_;
  Position end_;
  ByteReader bytes_;
};

}  // namespace

void Cache::WriteLayer(int layer_index, std::string& bytes) const {
  Data& data = *data_;
  LayerData& layer = data.layer(layer_index);
  ByteWriter out(bytes);
  out.Put(static_cast<uint8_t>(layer.keys_rotated));
  out.Put(static_cast<uint8_t>(layer.rows_are_slots));
  out.PutList(std::span<const double>(layer.numbers));
  out.Put(static_cast<uint32_t>(layer.index.lists().size()));
  std::vector<int32_t> values;
  for (const EntryList& list : layer.index.lists()) {
    values.resize(list.size());
    list.positions().CopyTo(values);
    out.PutList(std::span<const int32_t>(values));
    if (list.slots().is_identity()) {
      values.clear();
    } else {
      list.slots().CopyTo(values);
    }
    out.PutList(std::span<const int32_t>(values));
  }
  for (size_t head = 0; head < layer.heads.size(); ++head) {
    HeadState& state = layer.heads[head];
    out.PutList(std::span<const double>(state.numbers));
    state.columns.ForEach([&](auto& column) { out.PutRaw(std::as_bytes(std::span(column))); });
    if (data.config.storage.shared_rows) {
      const SlotRows rows = state.table.rows();
      values.resize(rows.size());
      for (size_t slot = 0; slot < rows.size(); ++slot) values[slot] = rows[slot];
      out.PutList(std::span<const int32_t>(values));
      out.Put(static_cast<uint64_t>(rows.size()));
      out.PutRaw(std::as_bytes(state.table.factors()));
    }
    const auto n_rows = static_cast<size_t>(data.placement->n_rows(layer_index, head));
    out.Put(static_cast<uint64_t>(n_rows));
    const size_t key_bytes =
        n_rows * static_cast<size_t>(data.placement->key_row_bytes(layer_index));
    const size_t value_bytes =
        n_rows * static_cast<size_t>(data.placement->value_row_bytes(layer_index));
    const std::span<std::byte> rows = out.Extend(key_bytes + value_bytes);
    data.placement->ReadRows(layer_index, head, rows.first(key_bytes), rows.subspan(key_bytes));
  }
}

Result<void> Cache::ReadLayer(int layer_index, std::span<const std::byte> bytes, Position end) {
  Data& data = *data_;
  LayerData& layer = data.layer(layer_index);
  LayerReader reader(data.config, layer_index, bytes, end);
  WINNOW_TRY(reader.ReadFlags(layer));
  WINNOW_TRY(reader.ReadLists(layer.index));
  for (const EntryList& list : layer.index.lists()) data.views.CoverEntries(list.size());
  for (size_t head = 0; head < layer.heads.size(); ++head) {
    WINNOW_TRY(reader.ReadHead(head, layer, layer.heads[head], *data.placement));
  }
  layer.has_biases = data.HasBiases(layer);
  return reader.Finish();
}

}  // namespace winnow::cache
