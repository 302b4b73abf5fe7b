#include "cache/cache.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <string>
#include <utility>

#include "base/check.h"
#include "cache/cache_data.h"
#include "gguf/tensor_type.h"

namespace winnow::cache {
namespace {

// Regions of different heads do not share a page, so that one head's can be given back alone.
constexpr int64_t kPageBytes = 4096;
// Bookkeeping grows by at least this many entries, so that decode steps rarely allocate.
constexpr size_t kGrowth = 1024;

std::optional<int64_t> Product(int64_t a, int64_t b) {
  int64_t product = 0;
  if (__builtin_mul_overflow(a, b, &product)) return std::nullopt;
  return product;
}

Result<void> CheckType(TensorType type, int dim, std::string_view what) {
  const gguf::TypeInfo& info = gguf::InfoOf(type);
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

template <class T>
void Extend(std::vector<T>& values, size_t n) {
  if (values.size() + n > values.capacity()) {
    values.reserve(std::max(values.size() + n + kGrowth, values.capacity() * 3 / 2));
  }
}

}  // namespace

Cache::Cache() : data_(std::make_unique<Data>()) {}
Cache::~Cache() = default;

Result<std::unique_ptr<Cache>> Cache::Make(kernels::Backend& backend, const CacheConfig& config) {
  const CacheShape& shape = config.shape;
  WINNOW_CHECK(shape.n_layers > 0 && shape.n_kv_heads > 0 && shape.key_dim > 0 &&
               shape.value_dim > 0);
  WINNOW_TRY(CheckType(config.key_type, shape.key_dim, "keys"));
  WINNOW_TRY(CheckType(config.value_type, shape.value_dim, "values"));
  if (config.capacity < 1 || config.capacity > std::numeric_limits<Slot>::max()) {
    return Error{"cache: a capacity of " + std::to_string(config.capacity) +
                 " tokens is out of range 1.." + std::to_string(std::numeric_limits<Slot>::max())};
  }
  std::unique_ptr<Cache> cache(new Cache());
  Data& data = *cache->data_;
  data.backend = &backend;
  data.config = config;
  WINNOW_TRY(data.Allocate());
  return cache;
}

Result<void> Cache::Data::Allocate() {
  const CacheShape& shape = config.shape;
  key_row_bytes = gguf::RowBytes(config.key_type, shape.key_dim);
  value_row_bytes = gguf::RowBytes(config.value_type, shape.value_dim);
  first_slot.resize(static_cast<size_t>(shape.n_kv_heads));

  // capacity < 2^31 and a row is below 2^32 bytes, so one head's region fits; all of them may not.
  const auto region = [&](int64_t row_bytes) {
    return (config.capacity * row_bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
  };
  key_region_bytes = region(key_row_bytes);
  value_region_bytes = region(value_row_bytes);
  const std::optional<int64_t> layer_bytes =
      Product(shape.n_kv_heads, key_region_bytes + value_region_bytes);
  const std::optional<int64_t> total_bytes =
      layer_bytes ? Product(*layer_bytes, shape.n_layers) : std::nullopt;
  const std::string wanted =
      "cache: keys and values of " + std::to_string(config.capacity) + " tokens need " +
      (total_bytes ? std::to_string(*total_bytes) : "more than 2^63") + " bytes";
  if (!total_bytes) return Error{wanted};

  gathering_offset = *total_bytes;
  gathering_bytes = config.gather_from_bytes > 0 ? *total_bytes / 2 : 0;
  if (*total_bytes > std::numeric_limits<int64_t>::max() - gathering_bytes) return Error{wanted};
  auto allocated = backend->AllocateGrowing(*total_bytes + gathering_bytes);
  if (!allocated && gathering_bytes > 0) {
    gathering_bytes = 0;  // where address space counts, it goes without
    allocated = backend->AllocateGrowing(*total_bytes);
  }
  if (!allocated) return Error{wanted + ": " + allocated.error().message};
  memory = std::move(allocated).value();
  used.reserve(2 * static_cast<size_t>(shape.n_layers) * static_cast<size_t>(shape.n_kv_heads));

  layers.resize(static_cast<size_t>(shape.n_layers));
  for (size_t l = 0; l < layers.size(); ++l) {
    LayerData& layer = layers[l];
    layer.numbers.resize(static_cast<size_t>(config.state.n_layer_numbers));
    layer.heads.resize(static_cast<size_t>(shape.n_kv_heads));
    layer.rooms.resize(static_cast<size_t>(shape.n_kv_heads));
    for (int64_t head = 0; head < shape.n_kv_heads; ++head) {
      layer.stores.push_back(OwnRegion(static_cast<int64_t>(l), head));
      HeadIndex& index = layer.heads[static_cast<size_t>(head)];
      index.columns.resize(static_cast<size_t>(config.state.n_columns));
      index.numbers.resize(static_cast<size_t>(config.state.n_head_numbers));
    }
  }
  return {};
}

void Cache::Data::Settle() {
  n_unsettled = 0;
  used.clear();
  for (const LayerData& layer : layers) {
    for (const kernels::HeadStore& store : layer.stores) {
      used.push_back(
          {store.keys_offset_bytes, store.keys_offset_bytes + store.n_slots * key_row_bytes});
    }
    for (const kernels::HeadStore& store : layer.stores) {
      used.push_back(
          {store.values_offset_bytes, store.values_offset_bytes + store.n_slots * value_row_bytes});
    }
  }
  backend->Settle(*memory, used);
}

Result<std::unique_ptr<Cache>> Cache::Copy() const {
  WINNOW_ASSIGN(std::unique_ptr<Cache> copy, Make(*data_->backend, data_->config));
  for (size_t l = 0; l < data_->layers.size(); ++l) {
    const LayerData& from = data_->layers[l];
    LayerData& to = copy->data_->layers[l];
    to.heads = from.heads;
    to.numbers = from.numbers;
    to.keys_rotated = from.keys_rotated;
    to.rows_are_slots = from.rows_are_slots;
    for (size_t head = 0; head < from.heads.size(); ++head) {
      to.stores[head].n_slots = from.stores[head].n_slots;
    }
  }
  // Large pages are cheaper before they are written. A copy of what a prompt left may get another
  // prompt; one of what was being generated goes on as it is.
  copy->data_->shrunk = data_->shrunk || data_->gathered;
  copy->data_->outgrown = data_->outgrown;
  if (data_->gathered && copy->data_->PaysToGather()) {
    copy->data_->Gather(/*written=*/false);
  } else {
    copy->data_->Settle();
  }
  for (size_t l = 0; l < data_->layers.size(); ++l) {
    for (size_t head = 0; head < data_->layers[l].stores.size(); ++head) {
      const kernels::HeadStore& from = data_->layers[l].stores[head];
      const kernels::HeadStore& to = copy->data_->layers[l].stores[head];
      data_->backend->CopyBytes(*data_->memory, from.keys_offset_bytes, *copy->data_->memory,
                                to.keys_offset_bytes, from.n_slots * data_->key_row_bytes);
      data_->backend->CopyBytes(*data_->memory, from.values_offset_bytes, *copy->data_->memory,
                                to.values_offset_bytes, from.n_slots * data_->value_row_bytes);
    }
  }
  return copy;
}

const CacheConfig& Cache::config() const { return data_->config; }
int64_t Cache::capacity() const { return data_->config.capacity; }

Result<void> Cache::Append(int layer_index, const kernels::Matrix& k, const kernels::Matrix& v,
                           std::span<const Position> positions) {
  Data& data = *data_;
  LayerData& layer = data.layer(layer_index);
  const int64_t n = k.rows;
  WINNOW_CHECK(v.rows == n && static_cast<int64_t>(positions.size()) == n);
  for (size_t head = 0; head < layer.stores.size(); ++head) {
    const auto n_slots = static_cast<int64_t>(layer.heads[head].n_slots());
    if (n > data.config.capacity - n_slots) {
      return Error{"cache: full: layer " + std::to_string(layer_index) + " holds " +
                   std::to_string(n_slots) + " of " + std::to_string(data.config.capacity) +
                   " entries, " + std::to_string(n) + " more do not fit"};
    }
    data.first_slot[head] = layer.stores[head].n_slots;
  }
  // Before the first layer of a call all layers are as the last call left them, compressed.
  if (layer_index == 0) {
    data.Arrange(n);
    if (data.n_unsettled >= kSettleAfter) data.Settle();
    data.n_unsettled += n;
  }
  data.MakeRoom(layer, n);
  data.backend->StoreRows(k, {.heads = layer.stores,
                              .first_slot = data.first_slot,
                              .type = data.config.key_type,
                              .to_keys = true});
  data.backend->StoreRows(v, {.heads = layer.stores,
                              .first_slot = data.first_slot,
                              .type = data.config.value_type,
                              .to_keys = false});
  for (size_t head = 0; head < layer.stores.size(); ++head) {
    HeadIndex& index = layer.heads[head];
    Extend(index.positions, positions.size());
    Extend(index.order, positions.size());
    Extend(index.ranks, positions.size());
    auto row = static_cast<Slot>(layer.stores[head].n_slots);
    for (const Position position : positions) {
      index.ranks.push_back(static_cast<int32_t>(index.order.size()));
      index.order.push_back(static_cast<Slot>(index.positions.size()));
      index.positions.push_back(position);
    }
    for (std::vector<double>& column : index.columns) {
      Extend(column, positions.size());
      column.resize(index.n_slots(), 0.0);
    }
    if (data.config.shared_rows) {
      Extend(index.rows, positions.size());
      Extend(index.factors, positions.size());
      while (index.rows.size() < index.n_slots()) index.rows.push_back(row++);
      index.factors.resize(index.n_slots(), 1.0f);
      Extend(index.n_sharing, positions.size());
      index.n_sharing.resize(static_cast<size_t>(row), 1);
    }
    layer.stores[head].n_slots += n;
  }
  return {};
}

int64_t Cache::RowsTogether(int layer, std::span<const Position> positions) const {
  const auto n = static_cast<int64_t>(positions.size());
  LayerData& l = data_->layer(layer);
  if (l.keys_rotated || data_->config.positions != PositionMode::kCapped || n <= 1) return n;
  Position oldest = positions[0];
  for (const HeadIndex& head : l.heads) oldest = std::min(oldest, head.Oldest(positions[0]));
  const int64_t last = oldest + data_->config.distance_cap;
  const auto end = std::find_if(positions.begin(), positions.end(),
                                [&](Position position) { return position > last; });
  return std::max<int64_t>(1, end - positions.begin());
}

bool Cache::keys_rotated(int layer) const { return data_->layer(layer).keys_rotated; }

void Cache::Unrotate(int layer, const kernels::RopeTable& rope) {
  WINNOW_CHECK(data_->config.positions != PositionMode::kOriginal);
  LayerData& l = data_->layer(layer);
  if (!l.keys_rotated) return;
  for (size_t head = 0; head < l.heads.size(); ++head) {
    const std::span<const Position> positions = l.heads[head].positions;
    // Rows were not shared while keys were rotated: row i is slot i.
    WINNOW_CHECK(static_cast<int64_t>(positions.size()) == l.stores[head].n_slots);
    data_->backend->Unrotate(data_->Keys(l, head), positions, rope);
  }
  l.keys_rotated = false;
}

void Cache::Clear() {
  Truncate(std::numeric_limits<Position>::min());
  if (data_->gathered) data_->Spread();
  data_->shrunk = data_->outgrown = false;
  for (LayerData& layer : data_->layers) {
    std::fill(layer.numbers.begin(), layer.numbers.end(), 0.0);
    layer.keys_rotated = true;
    layer.rows_are_slots = true;
    for (HeadIndex& head : layer.heads) std::fill(head.numbers.begin(), head.numbers.end(), 0.0);
  }
}

std::span<const kernels::HeadStore> Cache::Heads(int layer) const {
  return data_->layer(layer).stores;
}

std::span<const kernels::HeadEntries> Cache::Entries(int layer, int64_t n_queries) const {
  LayerData& l = data_->layer(layer);
  if (l.keys_rotated && l.rows_are_slots) return {};
  data_->PrepareEntries(l, n_queries);
  return l.entries;
}

void Cache::Data::PrepareEntries(LayerData& layer, int64_t n_queries) {
  layer.entries.resize(layer.heads.size());
  for (size_t head = 0; head < layer.heads.size(); ++head) {
    HeadIndex& index = layer.heads[head];
    const auto first_query = static_cast<int64_t>(index.n_slots()) - n_queries;
    WINNOW_CHECK(first_query >= 0);
    kernels::HeadEntries& entries = layer.entries[head];
    entries = {};
    if (!layer.rows_are_slots) {
      entries.rows = index.rows;
      entries.factors = index.factors;
    }
    if (layer.keys_rotated || n_queries == 0) continue;
    const Position query = index.positions[static_cast<size_t>(first_query)];
    switch (config.positions) {
      case PositionMode::kOriginal:
        break;
      case PositionMode::kText:
        entries.positions = index.positions;
        entries.query_position = query;
        break;
      case PositionMode::kReassigned:
        entries.positions = index.ranks;
        entries.query_position = static_cast<int32_t>(first_query);
        break;
      case PositionMode::kCapped: {
        // Only differences count: everything is shifted so that the last query is at the cap at
        // most.
        const auto cap = static_cast<Position>(
            std::min<int64_t>(config.distance_cap, std::numeric_limits<Position>::max()));
        const Position oldest = index.Oldest(query);
        WINNOW_CHECK(n_queries == 1 || index.positions.back() - oldest <= cap);
        entries.query_position = std::min(query - oldest, cap);
        index.distances.resize(index.n_slots());
        for (size_t slot = 0; slot < index.n_slots(); ++slot) {
          const Position distance = std::min(query - index.positions[slot], cap);
          index.distances[slot] = entries.query_position - distance;
        }
        entries.positions = index.distances;
        break;
      }
    }
  }
}

int64_t Cache::n_slots(int layer, int kv_head) const {
  return static_cast<int64_t>(data_->head(layer, kv_head).n_slots());
}

int64_t Cache::n_rows(int layer, int kv_head) const {
  return data_->layer(layer).stores.at(static_cast<size_t>(kv_head)).n_slots;
}

std::span<const Position> Cache::positions(int layer, int kv_head) const {
  return data_->head(layer, kv_head).positions;
}
std::span<const Slot> Cache::order(int layer, int kv_head) const {
  return data_->head(layer, kv_head).order;
}
std::span<const int32_t> Cache::ranks(int layer, int kv_head) const {
  return data_->head(layer, kv_head).ranks;
}
std::span<const Slot> Cache::rows(int layer, int kv_head) const {
  return data_->head(layer, kv_head).rows;
}
std::span<const float> Cache::factors(int layer, int kv_head) const {
  return data_->head(layer, kv_head).factors;
}
kernels::HeadRows Cache::keys(int layer, int kv_head) const {
  return data_->Keys(data_->layer(layer), static_cast<size_t>(kv_head));
}
kernels::HeadRows Cache::values(int layer, int kv_head) const {
  return data_->Values(data_->layer(layer), static_cast<size_t>(kv_head));
}

std::span<double> Cache::column(int layer, int kv_head, int column) {
  return data_->head(layer, kv_head).columns.at(static_cast<size_t>(column));
}
std::span<double> Cache::head_numbers(int layer, int kv_head) {
  return data_->head(layer, kv_head).numbers;
}
std::span<double> Cache::layer_numbers(int layer) { return data_->layer(layer).numbers; }

int64_t Cache::Data::LiveBytes(const LayerData& layer, size_t head) const {
  const int64_t row_bytes = key_row_bytes + value_row_bytes;
  int64_t slot_bytes = static_cast<int64_t>(sizeof(double)) * config.state.n_columns;
  if (config.shared_rows) slot_bytes += static_cast<int64_t>(sizeof(Slot) + sizeof(float));
  return layer.stores[head].n_slots * row_bytes +
         static_cast<int64_t>(layer.heads[head].n_slots()) * slot_bytes +
         static_cast<int64_t>(sizeof(double)) * config.state.n_head_numbers;
}

int64_t Cache::live_bytes() const {
  int64_t bytes = static_cast<int64_t>(sizeof(double)) * data_->config.state.n_layer_numbers *
                  data_->config.shape.n_layers;
  for (const LayerData& layer : data_->layers) {
    for (size_t head = 0; head < layer.heads.size(); ++head) bytes += data_->LiveBytes(layer, head);
  }
  return bytes;
}

int64_t Cache::live_bytes(int layer, int kv_head) const {
  return data_->LiveBytes(data_->layer(layer), static_cast<size_t>(kv_head));
}

int64_t Cache::state_bytes() const {
  int64_t n_rows = 0;
  for (const LayerData& layer : data_->layers) {
    for (const kernels::HeadStore& store : layer.stores) n_rows += store.n_slots;
  }
  return live_bytes() - n_rows * bytes_per_slot();
}

int64_t Cache::bytes_per_slot() const { return data_->key_row_bytes + data_->value_row_bytes; }

int64_t Cache::state_bytes_per_slot() const {
  const CacheConfig& config = data_->config;
  return static_cast<int64_t>(sizeof(double)) * config.state.n_columns +
         (config.shared_rows ? static_cast<int64_t>(sizeof(Slot) + sizeof(float)) : 0);
}

}  // namespace winnow::cache
