#include "cache/cache.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <string>
#include <utility>

#include "base/check.h"
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

void Extend(std::vector<int32_t>& values, size_t n) {
  if (values.size() + n > values.capacity()) {
    values.reserve(std::max(values.size() + n + kGrowth, values.capacity() * 3 / 2));
  }
}

// The host's knowledge about one KV head. Without overwriting, slots are in text order: positions
// ascend.
struct HeadIndex {
  std::vector<Position> positions;  // [slot]
  std::vector<Slot> order;          // oldest to newest
};

struct LayerData {
  std::unique_ptr<kernels::Storage> keys;
  std::unique_ptr<kernels::Storage> values;
  std::vector<kernels::HeadStore> stores;  // [kv_head]
  std::vector<HeadIndex> heads;            // [kv_head]
};

}  // namespace

struct Cache::Data {
  kernels::Backend* backend = nullptr;
  CacheConfig config;
  int64_t key_row_bytes = 0;
  int64_t value_row_bytes = 0;
  std::vector<LayerData> layers;
  std::vector<int64_t> first_slot;  // scratch of Append

  LayerData& layer(int index) {
    WINNOW_CHECK(index >= 0 && index < config.shape.n_layers);
    return layers[static_cast<size_t>(index)];
  }

  // Forgets the slots from `n_slots` on and gives their pages back.
  void Shrink(LayerData& layer, size_t head, int64_t n_slots) {
    kernels::HeadStore& store = layer.stores[head];
    const int64_t n_freed = store.n_slots - n_slots;
    WINNOW_CHECK(n_freed >= 0);
    store.n_slots = n_slots;
    layer.heads[head].positions.resize(static_cast<size_t>(n_slots));
    layer.heads[head].order.resize(static_cast<size_t>(n_slots));
    if (n_freed == 0) return;
    backend->Release(*layer.keys, store.keys_offset_bytes + n_slots * key_row_bytes,
                     n_freed * key_row_bytes);
    backend->Release(*layer.values, store.values_offset_bytes + n_slots * value_row_bytes,
                     n_freed * value_row_bytes);
  }
};

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
  data.key_row_bytes = gguf::RowBytes(config.key_type, shape.key_dim);
  data.value_row_bytes = gguf::RowBytes(config.value_type, shape.value_dim);
  data.first_slot.resize(static_cast<size_t>(shape.n_kv_heads));

  // capacity < 2^31 and a row is below 2^32 bytes, so one head's region fits; all of them may not.
  const auto region = [&](int64_t row_bytes) {
    return (config.capacity * row_bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
  };
  const int64_t key_region = region(data.key_row_bytes);
  const int64_t value_region = region(data.value_row_bytes);
  const std::optional<int64_t> layer_bytes = Product(shape.n_kv_heads, key_region + value_region);
  const std::optional<int64_t> total_bytes =
      layer_bytes ? Product(*layer_bytes, shape.n_layers) : std::nullopt;
  const std::string wanted =
      "cache: keys and values of " + std::to_string(config.capacity) + " tokens need " +
      (total_bytes ? std::to_string(*total_bytes) : "more than 2^63") + " bytes";
  if (!total_bytes) return Error{wanted};

  data.layers.resize(static_cast<size_t>(shape.n_layers));
  for (LayerData& layer : data.layers) {
    auto keys = backend.Allocate(shape.n_kv_heads * key_region);
    if (!keys) return Error{wanted + ": " + keys.error().message};
    auto values = backend.Allocate(shape.n_kv_heads * value_region);
    if (!values) return Error{wanted + ": " + values.error().message};
    layer.keys = std::move(keys).value();
    layer.values = std::move(values).value();
    layer.heads.resize(static_cast<size_t>(shape.n_kv_heads));
    for (int64_t head = 0; head < shape.n_kv_heads; ++head) {
      layer.stores.push_back({.keys = layer.keys.get(),
                              .values = layer.values.get(),
                              .keys_offset_bytes = head * key_region,
                              .values_offset_bytes = head * value_region,
                              .n_slots = 0});
    }
  }
  return cache;
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
    const int64_t n_slots = layer.stores[head].n_slots;
    if (n > data.config.capacity - n_slots) {
      return Error{"cache: full: layer " + std::to_string(layer_index) + " holds " +
                   std::to_string(n_slots) + " of " + std::to_string(data.config.capacity) +
                   " entries, " + std::to_string(n) + " more do not fit"};
    }
    data.first_slot[head] = n_slots;
  }
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
    WINNOW_DCHECK(index.positions.empty() || n == 0 || index.positions.back() < positions[0]);
    Extend(index.positions, positions.size());
    Extend(index.order, positions.size());
    for (const Position position : positions) {
      index.order.push_back(static_cast<Slot>(index.positions.size()));
      index.positions.push_back(position);
    }
    layer.stores[head].n_slots += n;
  }
  return {};
}

void Cache::Apply(const Plan& plan) {
  Data& data = *data_;
  LayerData& layer = data.layer(plan.layer);
  WINNOW_CHECK(plan.heads.size() == layer.heads.size());
  std::vector<Slot> from, to;
  for (size_t head = 0; head < layer.heads.size(); ++head) {
    const std::vector<Slot>& keep = plan.heads[head].keep;
    const kernels::HeadStore& store = layer.stores[head];
    HeadIndex& index = layer.heads[head];
    // Slots are in text order, so survivors only move forward and none overwrites one that is still
    // to move.
    from.clear();
    to.clear();
    for (size_t i = 0; i < keep.size(); ++i) {
      WINNOW_CHECK(keep[i] >= 0 && keep[i] < store.n_slots && (i == 0 || keep[i - 1] < keep[i]));
      if (keep[i] == static_cast<Slot>(i)) continue;
      from.push_back(keep[i]);
      to.push_back(static_cast<Slot>(i));
      index.positions[i] = index.positions[static_cast<size_t>(keep[i])];
    }
    if (!from.empty()) {
      data.backend->MoveRows(*layer.keys, store.keys_offset_bytes, data.key_row_bytes, from, to);
      data.backend->MoveRows(*layer.values, store.values_offset_bytes, data.value_row_bytes, from,
                             to);
    }
    data.Shrink(layer, head, static_cast<int64_t>(keep.size()));
    index.positions.shrink_to_fit();
    index.order.shrink_to_fit();
  }
}

void Cache::Truncate(Position position) {
  for (LayerData& layer : data_->layers) {
    for (size_t head = 0; head < layer.heads.size(); ++head) {
      const std::vector<Position>& positions = layer.heads[head].positions;
      const auto end = std::lower_bound(positions.begin(), positions.end(), position);
      data_->Shrink(layer, head, end - positions.begin());
    }
  }
}

void Cache::Clear() { Truncate(std::numeric_limits<Position>::min()); }

std::span<const kernels::HeadStore> Cache::Heads(int layer) const {
  return data_->layer(layer).stores;
}

int64_t Cache::n_slots(int layer, int kv_head) const {
  return data_->layer(layer).stores.at(static_cast<size_t>(kv_head)).n_slots;
}

std::span<const Position> Cache::positions(int layer, int kv_head) const {
  return data_->layer(layer).heads.at(static_cast<size_t>(kv_head)).positions;
}

std::span<const Slot> Cache::order(int layer, int kv_head) const {
  return data_->layer(layer).heads.at(static_cast<size_t>(kv_head)).order;
}

int64_t Cache::live_bytes() const {
  int64_t n_live = 0;
  for (const LayerData& layer : data_->layers) {
    for (const kernels::HeadStore& store : layer.stores) n_live += store.n_slots;
  }
  return n_live * bytes_per_slot();
}

int64_t Cache::bytes_per_slot() const { return data_->key_row_bytes + data_->value_row_bytes; }

}  // namespace winnow::cache
