#include "cache/cache.h"

#include <algorithm>
#include <limits>
#include <string>
#include <utility>

#include "base/check.h"
#include "cache/cache_data.h"
#include "gguf/tensor_type.h"

namespace winnow::cache {
namespace {

Result<void> CheckType(TensorType type, int dim, std::string_view what) {
  const gguf::TypeInfo& info = gguf::GetTypeInfo(type);
  if (!kernels::IsCacheType(type)) {
    return Error{"cache: " + std::string(what) + " cannot be stored as " + std::string(info.name) +
                 "; supported: F32, F16, BF16, Q8_0, Q4_0"};
  }
  if (dim % info.block_elements != 0) {
    return Error{"cache: " + std::string(what) + " of " + std::to_string(dim) +
                 " elements per head cannot be stored as " + std::string(info.name) +
                 ", which needs a multiple of " + std::to_string(info.block_elements)};
  }
  return {};
}

}  // namespace

CacheShape MakeShape(const std::vector<LayerShape>& layers) {
  WINNOW_CHECK(!layers.empty());
  CacheShape shape = {.n_layers = static_cast<int>(layers.size())};
  bool alike = true;
  for (const LayerShape& layer : layers) {
    shape.n_kv_heads = std::max(shape.n_kv_heads, layer.n_kv_heads);
    shape.key_dim = std::max(shape.key_dim, layer.key_dim);
    shape.value_dim = std::max(shape.value_dim, layer.value_dim);
    alike = alike && layer == layers.front();
  }
  if (!alike) shape.by_layer = layers;
  return shape;
}

Cache::Cache() = default;
Cache::~Cache() = default;

Cache::Data::Data(const CacheConfig& cache_config, std::unique_ptr<Placement> rows)
    : config(cache_config),
      placement(std::move(rows)),
      views(static_cast<size_t>(config.shape.n_kv_heads)) {
  for (int l = 0; l < config.shape.n_layers; ++l) {
    LayerData& layer = layers.emplace_back(static_cast<size_t>(config.shape.layer(l).n_kv_heads));
    layer.numbers.resize(static_cast<size_t>(config.state.n_layer_numbers));
    for (HeadState& head : layer.heads) {
      head.columns.Shape(config.state);
      head.numbers.resize(static_cast<size_t>(config.state.n_head_numbers));
    }
  }
}

size_t Cache::Data::MaxEntries() const {
  size_t max_entries = 0;
  for (const LayerData& layer : layers) {
    for (const EntryList& list : layer.index.lists()) {
      max_entries = std::max(max_entries, list.size());
    }
  }
  return max_entries;
}

Result<std::unique_ptr<Cache>> Cache::Make(kernels::Backend& backend, const CacheConfig& config) {
  const CacheShape& shape = config.shape;
  WINNOW_CHECK(shape.n_layers > 0 &&
               (shape.alike() || std::ssize(shape.by_layer) == shape.n_layers));
  for (int l = 0; l < (shape.alike() ? 1 : shape.n_layers); ++l) {
    const LayerShape layer = shape.layer(l);
    WINNOW_CHECK(layer.n_kv_heads > 0 && layer.key_dim > 0 && layer.value_dim > 0);
    WINNOW_CHECK(config.n_copies > 0 && layer.n_kv_heads % config.n_copies == 0);
    WINNOW_TRY(CheckType(config.key_type, layer.key_dim, "keys"));
    WINNOW_TRY(CheckType(config.value_type, layer.value_dim, "values"));
  }
  constexpr int64_t kMaxSlots = std::numeric_limits<Slot>::max();
  WINNOW_CHECK(config.transient_capacity >= 0);
  if (config.capacity < 1 || config.capacity > kMaxSlots - config.transient_capacity) {
    return Error{"cache: a capacity of " + std::to_string(config.capacity) +
                 " tokens is out of range 1.." +
                 std::to_string(kMaxSlots - config.transient_capacity)};
  }
  WINNOW_ASSIGN(std::unique_ptr<Placement> placement, Placement::Make(backend, config));
  std::unique_ptr<Cache> cache(new Cache());
  cache->backend_ = &backend;
  cache->data_ = std::make_unique<Data>(config, std::move(placement));
  return cache;
}

Result<std::unique_ptr<Cache>> Cache::Copy() const {
  WINNOW_ASSIGN(std::unique_ptr<Cache> copy, Make(*backend_, data_->config));
  copy->data_->layers = data_->layers;
  copy->data_->views.CoverEntries(data_->MaxEntries());
  copy->data_->placement->CopyFrom(*data_->placement);
  return copy;
}

const CacheConfig& Cache::config() const { return data_->config; }
int64_t Cache::capacity() const { return data_->config.capacity; }
int64_t Cache::transient_capacity() const { return data_->config.transient_capacity; }

void Cache::BeginCall(Phase phase, int64_t n_tokens) {
  data_->placement->BeginCall(phase, n_tokens);
  data_->TrimWorkingMemory();
}

Result<void> Cache::CheckRoom(int layer, int64_t n) const {
  const int64_t capacity = data_->config.capacity + data_->config.transient_capacity;
  for (const EntryList& list : data_->layer(layer).index.lists()) {
    const auto n_slots = static_cast<int64_t>(list.size());
    if (n <= capacity - n_slots) continue;
    return Error{"cache: full: layer " + std::to_string(layer) + " holds " +
                 std::to_string(n_slots) + " of " + std::to_string(capacity) + " entries, " +
                 std::to_string(n) + " more do not fit"};
  }
  return {};
}

Result<void> Cache::Append(int layer_index, const kernels::Matrix& k, const kernels::Matrix& v,
                           std::span<const Position> positions) {
  Data& data = *data_;
  LayerData& layer = data.layer(layer_index);
  const int64_t n = k.rows;
  WINNOW_CHECK(v.rows == n && static_cast<int64_t>(positions.size()) == n);
  WINNOW_TRY(CheckRoom(layer_index, n));
  for (size_t head = 0; head < layer.heads.size(); ++head) {
    const auto first_row = static_cast<Slot>(data.placement->n_rows(layer_index, head));
    layer.heads[head].Append(positions.size(), data.config.storage.shared_rows, first_row);
  }
  if (keys_transformed(layer_index)) {
    backend_->Hadamard(k, data.config.shape.layer(layer_index).key_dim);
  }
  data.placement->Append(layer_index, k, v);
  layer.index.Append(positions);
  for (const EntryList& list : layer.index.lists()) data.views.CoverEntries(list.size());
  return {};
}

int64_t Cache::RowsTogether(int layer, std::span<const Position> positions) const {
  const auto n = static_cast<int64_t>(positions.size());
  const LayerData& l = data_->layer(layer);
  if (l.keys_rotated || data_->config.storage.positions != PositionMode::kCapped || n <= 1)
    return n;
  Position oldest = positions[0];
  for (const EntryList& list : l.index.lists()) {
    oldest = std::min(oldest, list.oldest(positions[0]));
  }
  const int64_t last = oldest + data_->config.storage.distance_cap;
  const auto end = std::find_if(positions.begin(), positions.end(),
                                [&](Position position) { return position > last; });
  return std::max<int64_t>(1, end - positions.begin());
}

bool Cache::keys_rotated(int layer) const { return data_->layer(layer).keys_rotated; }

bool Cache::keys_transformed(int layer) const {
  return data_->config.hadamard_keys && keys_rotated(layer);
}

void Cache::Unrotate(int layer, const kernels::RopeTable& rope) {
  WINNOW_CHECK(data_->config.storage.positions != PositionMode::kOriginal);
  LayerData& l = data_->layer(layer);
  if (!l.keys_rotated) return;
  for (size_t head = 0; head < l.heads.size(); ++head) {
    const std::span<const Position> positions =
        data_->views.Positions(data_->ViewSource(layer), head);
    // Rows are not shared while keys are rotated: row i is slot i.
    WINNOW_CHECK(static_cast<int64_t>(positions.size()) == data_->placement->n_rows(layer, head));
    data_->placement->Unrotate(layer, head, positions, rope);
  }
  l.keys_rotated = false;
}

void Cache::Clear() {
  Truncate(std::numeric_limits<Position>::min());
  data_->placement->Clear();
  for (LayerData& layer : data_->layers) {
    std::fill(layer.numbers.begin(), layer.numbers.end(), 0.0);
    layer.keys_rotated = true;
    layer.rows_are_slots = true;
    layer.has_biases = false;
    for (HeadState& head : layer.heads) std::fill(head.numbers.begin(), head.numbers.end(), 0.0);
  }
}

std::span<const kernels::HeadStore> Cache::Heads(int layer) const {
  return data_->placement->stores(layer);
}

std::span<const kernels::HeadEntries> Cache::Entries(int layer, int64_t n_queries) const {
  const LayerData& l = data_->layer(layer);
  if (l.keys_rotated && l.rows_are_slots && !l.has_biases) return {};
  data_->PrepareEntries(layer, n_queries);
  return data_->entries;
}

void Cache::Data::PrepareEntries(int layer_index, int64_t n_queries) {
  const LayerData& layer = layers[static_cast<size_t>(layer_index)];
  const ListViews::Source source = ViewSource(layer_index);
  entries.resize(layer.heads.size());
  for (size_t head = 0; head < layer.heads.size(); ++head) {
    const EntryList& list = layer.index.head(head);
    const auto first_query = static_cast<int64_t>(list.size()) - n_queries;
    WINNOW_CHECK(first_query >= 0);
    kernels::HeadEntries& one = entries[head];
    one = {};
    if (layer.has_biases) {
      const auto column = static_cast<size_t>(config.storage.bias_column);
      one.biases = layer.heads[head].columns.halves[column];
    }
    if (!layer.rows_are_slots) {
      const RowTable& table = layer.heads[head].table;
      one.rows = table.rows().rows();
      one.short_rows = table.rows().short_rows();
      one.factors = table.factors();
    }
    if (layer.keys_rotated || n_queries == 0) continue;
    // The newest entries lie in the last slots, in text order.
    const Position query = list.positions()[static_cast<size_t>(first_query)];
    switch (config.storage.positions) {
      case PositionMode::kOriginal:
        break;
      case PositionMode::kText:
        one.positions = views.Positions(source, head);
        one.query_position = query;
        break;
      case PositionMode::kReassigned:
        one.positions = views.Ranks(source, head);
        one.query_position = static_cast<int32_t>(first_query);
        break;
      case PositionMode::kCapped: {
        // Only differences matter: positions are shifted so that the last query is at most at the
        // cap.
        const auto cap = static_cast<Position>(
            std::min<int64_t>(config.storage.distance_cap, std::numeric_limits<Position>::max()));
        const Position oldest = list.oldest(query);
        WINNOW_CHECK(n_queries == 1 || list.positions()[list.size() - 1] - oldest <= cap);
        one.query_position = std::min(query - oldest, cap);
        one.positions = views.Capped(
            source, head, {.query = query, .cap = cap, .query_position = one.query_position});
        break;
      }
    }
  }
}

bool Cache::Data::HasBiases(const LayerData& layer) const {
  if (config.storage.bias_column < 0) return false;
  return std::ranges::any_of(layer.heads, [&](const HeadState& head) {
    const std::vector<Half>& biases =
        head.columns.halves[static_cast<size_t>(config.storage.bias_column)];
    return std::ranges::any_of(biases, [](Half bias) { return bias.bits != 0; });
  });
}

int64_t Cache::n_slots(int layer, int kv_head) const {
  return static_cast<int64_t>(data_->list(layer, kv_head).size());
}

int64_t Cache::n_rows(int layer, int kv_head) const {
  return data_->placement->n_rows(layer, static_cast<size_t>(kv_head));
}

std::span<const Position> Cache::positions(int layer, int kv_head) const {
  return data_->views.Positions(data_->ViewSource(layer), static_cast<size_t>(kv_head));
}
std::span<const Slot> Cache::order(int layer, int kv_head) const {
  return data_->views.Order(data_->ViewSource(layer), static_cast<size_t>(kv_head));
}
std::span<const int32_t> Cache::ranks(int layer, int kv_head) const {
  return data_->views.Ranks(data_->ViewSource(layer), static_cast<size_t>(kv_head));
}
SlotRows Cache::rows(int layer, int kv_head) const {
  return data_->head(layer, kv_head).table.rows();
}
std::span<const int32_t> Cache::n_sharing(int layer, int kv_head) const {
  return data_->head(layer, kv_head).n_sharing;
}
std::span<const Half> Cache::factors(int layer, int kv_head) const {
  return data_->head(layer, kv_head).table.factors();
}
kernels::HeadRows Cache::keys(int layer, int kv_head) const {
  kernels::HeadRows rows = data_->placement->keys(layer, static_cast<size_t>(kv_head));
  rows.hadamard = keys_transformed(layer);
  return rows;
}
kernels::HeadRows Cache::values(int layer, int kv_head) const {
  return data_->placement->values(layer, static_cast<size_t>(kv_head));
}

std::span<double> Cache::column(int layer, int kv_head, int column) {
  return data_->head(layer, kv_head).columns.doubles.at(static_cast<size_t>(column));
}
std::span<float> Cache::float_column(int layer, int kv_head, int column) {
  return data_->head(layer, kv_head).columns.floats.at(static_cast<size_t>(column));
}
std::span<Half> Cache::half_column(int layer, int kv_head, int column) {
  return data_->head(layer, kv_head).columns.halves.at(static_cast<size_t>(column));
}
std::span<double> Cache::head_numbers(int layer, int kv_head) {
  return data_->head(layer, kv_head).numbers;
}
std::span<double> Cache::layer_numbers(int layer) { return data_->layer(layer).numbers; }

int64_t Cache::Data::SlotStateBytes() const {
  return config.state.slot_bytes() + (config.storage.shared_rows ? RowTable::kSlotBytes : 0);
}

int64_t Cache::Data::LiveBytes(int layer_index, size_t head) const {
  const auto n_slots =
      static_cast<int64_t>(layers[static_cast<size_t>(layer_index)].index.head(head).size());
  return placement->n_rows(layer_index, head) * placement->row_bytes(layer_index) +
         n_slots * config.state.slot_bytes() +
         layers[static_cast<size_t>(layer_index)].heads[head].table.bytes() +
         static_cast<int64_t>(sizeof(double)) * config.state.n_head_numbers;
}

int64_t Cache::live_bytes() const {
  const CacheConfig& config = data_->config;
  int64_t bytes =
      static_cast<int64_t>(sizeof(double)) * config.state.n_layer_numbers * config.shape.n_layers;
  for (int layer = 0; layer < config.shape.n_layers; ++layer) {
    const int n_heads = config.shape.layer(layer).n_kv_heads;
    for (int head = 0; head < n_heads; ++head) bytes += live_bytes(layer, head);
  }
  return bytes;
}

int64_t Cache::live_bytes(int layer, int kv_head) const {
  return data_->LiveBytes(layer, static_cast<size_t>(kv_head));
}

int64_t Cache::state_bytes() const {
  int64_t row_bytes = 0;
  for (int layer = 0; layer < data_->config.shape.n_layers; ++layer) {
    for (const kernels::HeadStore& store : data_->placement->stores(layer)) {
      row_bytes += store.n_slots * bytes_per_slot(layer);
    }
  }
  return live_bytes() - row_bytes;
}

int64_t Cache::list_bytes() const {
  const CacheShape& shape = data_->config.shape;
  int64_t bytes = 0;
  for (int layer = 0; layer < shape.n_layers; ++layer) {
    const int n_heads = shape.layer(layer).n_kv_heads;
    for (int head = 0; head < n_heads; ++head) bytes += list_bytes(layer, head);
  }
  return bytes;
}

int64_t Cache::list_bytes(int layer, int kv_head) const {
  const std::vector<int32_t>& counts = data_->head(layer, kv_head).n_sharing;
  return data_->layer(layer).index.allocated_bytes(static_cast<size_t>(kv_head)) +
         static_cast<int64_t>(counts.capacity() * sizeof(int32_t));
}

int64_t Cache::bytes_per_slot(int layer) const { return data_->placement->row_bytes(layer); }

int64_t Cache::bytes_per_token() const {
  const CacheShape& shape = data_->config.shape;
  int64_t bytes = 0;
  for (int layer = 0; layer < shape.n_layers; ++layer) {
    bytes += shape.layer(layer).n_kv_heads * bytes_per_slot(layer);
  }
  return bytes;
}

int64_t Cache::state_bytes_per_slot() const { return data_->SlotStateBytes(); }

int64_t Cache::max_list_bytes_per_slot() const {
  const int64_t count_bytes = data_->config.storage.shared_rows ? int64_t{sizeof(int32_t)} : 0;
  return EntryList::MaxBytesPerEntry(capacity() + transient_capacity()) + count_bytes;
}

}  // namespace winnow::cache
