#include "cache/placement/placement.h"

#include <limits>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/check.h"
#include "gguf/tensor_type.h"

namespace winnow::cache {
namespace {

// Regions of different heads share no page, so that each can be released alone.
constexpr int64_t kPageBytes = 4096;
// The pages of fewer freed rows than this are kept.
constexpr int64_t kFewRows = 32;

std::optional<int64_t> Product(int64_t a, int64_t b) {
  int64_t product = 0;
  if (__builtin_mul_overflow(a, b, &product)) return std::nullopt;
  return product;
}

std::optional<int64_t> Sum(int64_t a, int64_t b) {
  int64_t sum = 0;
  if (__builtin_add_overflow(a, b, &sum)) return std::nullopt;
  return sum;
}

}  // namespace

Placement::Placement(kernels::Backend& backend, const CacheConfig& config)
    : backend_(backend),
      config_(config),
      first_slot_(static_cast<size_t>(config.shape.n_kv_heads)) {}

Result<std::unique_ptr<Placement>> Placement::Make(kernels::Backend& backend,
                                                   const CacheConfig& config) {
  std::unique_ptr<Placement> placement(new Placement(backend, config));
  WINNOW_TRY(placement->Allocate());
  return placement;
}

Result<void> Placement::Allocate() {
  const CacheShape& shape = config_.shape;
  // Slots are below 2^31 and a row is below 2^32 bytes, so the size of one region fits into an
  // int64_t; their sum may not.
  const int64_t n_slots = config_.capacity + config_.transient_capacity;
  const auto region = [&](int64_t row_bytes) {
    return (n_slots * row_bytes + kPageBytes - 1) / kPageBytes * kPageBytes;
  };
  std::optional<int64_t> total_bytes = 0;
  layers_.resize(static_cast<size_t>(shape.n_layers));
  for (int l = 0; l < shape.n_layers && total_bytes; ++l) {
    Layer& one = layer(l);
    one.shape = shape.layer(l);
    one.key_row_bytes = gguf::RowBytes(config_.key_type, one.shape.key_dim);
    one.value_row_bytes = gguf::RowBytes(config_.value_type, one.shape.value_dim);
    one.key_region_bytes = region(one.key_row_bytes);
    one.value_region_bytes = region(one.value_row_bytes);
    one.offset_bytes = *total_bytes;
    const std::optional<int64_t> bytes =
        Product(one.shape.n_kv_heads, one.key_region_bytes + one.value_region_bytes);
    total_bytes = bytes ? Sum(*total_bytes, *bytes) : std::nullopt;
  }
  const Error too_large = {
      .message = "cache: keys and values of " + std::to_string(n_slots) + " tokens need " +
                 (total_bytes ? std::to_string(*total_bytes) : "more than 2^63") + " bytes",
      .code = ErrorCode::kTooLarge};
  if (!total_bytes) return too_large;

  gathering_offset_ = *total_bytes;
  gathering_bytes_ = config_.gather_from_bytes > 0 ? *total_bytes / 2 : 0;
  if (*total_bytes > std::numeric_limits<int64_t>::max() - gathering_bytes_) return too_large;
  auto allocated = backend_.AllocateGrowing(*total_bytes + gathering_bytes_);
  if (!allocated && gathering_bytes_ > 0) {
    gathering_bytes_ = 0;  // address space is limited: do not gather
    allocated = backend_.AllocateGrowing(*total_bytes);
  }
  if (!allocated) return Prefixed(too_large.message + ": ", allocated.error());
  memory_ = std::move(allocated).value();
  used_.reserve(2 * static_cast<size_t>(shape.n_layers) * static_cast<size_t>(shape.n_kv_heads));

  for (Layer& one : layers_) {
    one.max_rows.resize(static_cast<size_t>(one.shape.n_kv_heads));
    for (int64_t head = 0; head < one.shape.n_kv_heads; ++head) {
      one.stores.push_back(OwnRegion(one, head));
    }
  }
  return {};
}

Placement::Layer& Placement::layer(int index) {
  WINNOW_CHECK(index >= 0 && index < config_.shape.n_layers);
  return layers_[static_cast<size_t>(index)];
}

const Placement::Layer& Placement::at(int index) const {
  WINNOW_CHECK(index >= 0 && index < config_.shape.n_layers);
  return layers_[static_cast<size_t>(index)];
}

kernels::HeadStore Placement::OwnRegion(const Layer& layer, int64_t head) const {
  const int64_t values_offset =
      layer.offset_bytes + layer.shape.n_kv_heads * layer.key_region_bytes;
  return {.keys = memory_.get(),
          .values = memory_.get(),
          .keys_offset_bytes = layer.offset_bytes + head * layer.key_region_bytes,
          .values_offset_bytes = values_offset + head * layer.value_region_bytes,
          .n_slots = 0};
}

std::span<const kernels::HeadStore> Placement::stores(int layer) const { return at(layer).stores; }

kernels::HeadRows Placement::keys(int layer, size_t head) const {
  return {memory_.get(), stores(layer)[head].keys_offset_bytes, at(layer).shape.key_dim,
          config_.key_type};
}

kernels::HeadRows Placement::values(int layer, size_t head) const {
  return {memory_.get(), stores(layer)[head].values_offset_bytes, at(layer).shape.value_dim,
          config_.value_type};
}

void Placement::BeginCall(Phase phase, int64_t n_tokens) {
  phase_ = phase;
  Arrange();
  if (n_since_huge_pages_ >= kHugePagesAfter) UseHugePages();
  n_since_huge_pages_ += n_tokens;
}

void Placement::StoreHeads(const kernels::Matrix& k, const kernels::Matrix& v, const Layer& layer,
                           size_t first, size_t n) {
  const auto stores = std::span(layer.stores).subspan(first, n);
  const auto slots = std::span<const int64_t>(first_slot_).subspan(first, n);
  backend_.StoreRows(
      k, {.heads = stores, .first_slot = slots, .type = config_.key_type, .to_keys = true});
  backend_.StoreRows(
      v, {.heads = stores, .first_slot = slots, .type = config_.value_type, .to_keys = false});
}

void Placement::Append(int layer_index, const kernels::Matrix& k, const kernels::Matrix& v) {
  Layer& l = layer(layer_index);
  for (size_t head = 0; head < l.stores.size(); ++head) {
    first_slot_[head] = l.stores[head].n_slots;
  }
  MakeRoom(l, k.rows);
  if (config_.n_copies == 1) {
    StoreHeads(k, v, l, 0, l.stores.size());
  } else {
    for (size_t head = 0; head < l.stores.size(); ++head) {
      const auto of_model = static_cast<int64_t>(head) / config_.n_copies;
      StoreHeads(k.Cols(of_model * l.shape.key_dim, l.shape.key_dim),
                 v.Cols(of_model * l.shape.value_dim, l.shape.value_dim), l, head, 1);
    }
  }
  for (kernels::HeadStore& store : l.stores) store.n_slots += k.rows;
}

void Placement::Merge(int layer, size_t head, const HeadPlan& plan) {
  const int64_t n_rows = this->n_rows(layer, head);
  sources_.clear();
  key_weights_.clear();
  value_weights_.clear();
  for (const HeadPlan::Source& source : plan.sources) {
    WINNOW_CHECK(source.row >= 0 && source.row < n_rows);
    sources_.push_back(source.row);
    key_weights_.push_back(source.key_weight);
    value_weights_.push_back(source.value_weight);
  }
  key_sums_.clear();
  value_sums_.clear();
  size_t first = 0;
  for (const HeadPlan::Merge& merge : plan.merges) {
    const auto n = static_cast<size_t>(merge.n_sources);
    WINNOW_CHECK(merge.into >= 0 && merge.into < n_rows && first + n <= sources_.size());
    const std::span<const int32_t> rows = std::span(sources_).subspan(first, n);
    key_sums_.push_back({merge.into, rows, std::span(key_weights_).subspan(first, n)});
    value_sums_.push_back({merge.into, rows, std::span(value_weights_).subspan(first, n)});
    first += n;
  }
  WINNOW_CHECK(first == sources_.size());
  backend_.SumRows(keys(layer, head), key_sums_);
  backend_.SumRows(values(layer, head), value_sums_);
}

void Placement::WriteValues(int layer, size_t head, std::span<const Slot> rows,
                            std::span<const float> values) {
  for (const Slot row : rows) WINNOW_CHECK(row >= 0 && row < n_rows(layer, head));
  backend_.WriteRows(this->values(layer, head), rows, values);
}

void Placement::Move(int layer, size_t head, const Moves& moves) {
  if (moves.from.empty()) return;
  const kernels::HeadStore& store = stores(layer)[head];
  backend_.MoveRows(*memory_, store.keys_offset_bytes, key_row_bytes(layer), moves.from, moves.to);
  backend_.MoveRows(*memory_, store.values_offset_bytes, value_row_bytes(layer), moves.from,
                    moves.to);
}

bool Placement::Shrink(int layer_index, size_t head, int64_t n_rows) {
  Layer& l = layer(layer_index);
  kernels::HeadStore& store = l.stores[head];
  const int64_t n_freed = store.n_slots - n_rows;
  store.n_slots = n_rows;
  if (n_freed < kFewRows) return false;
  shrunk_ = true;
  backend_.Release(*memory_, store.keys_offset_bytes + n_rows * l.key_row_bytes,
                   n_freed * l.key_row_bytes);
  backend_.Release(*memory_, store.values_offset_bytes + n_rows * l.value_row_bytes,
                   n_freed * l.value_row_bytes);
  return true;
}

void Placement::Unrotate(int layer, size_t head, std::span<const Position> positions,
                         const kernels::RopeTable& rope) {
  kernels::HeadRows rows = keys(layer, head);
  rows.hadamard = config_.hadamard_keys;
  backend_.Unrotate(rows, positions, rope);
}

void Placement::ReadRows(int layer, size_t head, std::span<std::byte> keys,
                         std::span<std::byte> values) const {
  const kernels::HeadStore& store = stores(layer)[head];
  WINNOW_CHECK(static_cast<int64_t>(keys.size()) == store.n_slots * key_row_bytes(layer) &&
               static_cast<int64_t>(values.size()) == store.n_slots * value_row_bytes(layer));
  backend_.ReadBytes(*memory_, store.keys_offset_bytes, keys);
  backend_.ReadBytes(*memory_, store.values_offset_bytes, values);
}

void Placement::AssignRows(int layer_index, size_t head, int64_t n_rows,
                           std::span<const std::byte> keys, std::span<const std::byte> values) {
  kernels::HeadStore& store = layer(layer_index).stores[head];
  WINNOW_CHECK(store.n_slots == 0 && n_rows <= config_.capacity &&
               static_cast<int64_t>(keys.size()) == n_rows * key_row_bytes(layer_index) &&
               static_cast<int64_t>(values.size()) == n_rows * value_row_bytes(layer_index));
  backend_.WriteBytes(*memory_, store.keys_offset_bytes, keys);
  backend_.WriteBytes(*memory_, store.values_offset_bytes, values);
  store.n_slots = n_rows;
  shrunk_ = true;  // as after compressing a prompt: the rows may be gathered
}

void Placement::Clear() {
  if (gathered_) Scatter();
  shrunk_ = outgrew_gathering_ = false;
}

void Placement::CopyFrom(const Placement& other) {
  for (size_t l = 0; l < layers_.size(); ++l) {
    for (size_t head = 0; head < layers_[l].stores.size(); ++head) {
      layers_[l].stores[head].n_slots = other.layers_[l].stores[head].n_slots;
    }
  }
  // Request huge pages before writing: that is cheaper. Another prompt may follow the copy of a
  // prompt, so its rows stay in their regions; a copy of a gathered cache is gathered too.
  shrunk_ = other.shrunk_ || other.gathered_;
  outgrew_gathering_ = other.outgrew_gathering_;
  if (other.gathered_ && ShouldGather()) {
    Gather(/*written=*/false);
  } else {
    UseHugePages();
  }
  // Most of the time goes into first writes to pages: divide them between all threads.
  std::vector<std::pair<size_t, size_t>> heads;  // (layer, KV head)
  for (size_t l = 0; l < layers_.size(); ++l) {
    for (size_t head = 0; head < layers_[l].stores.size(); ++head) heads.emplace_back(l, head);
  }
  backend_.ForEach(static_cast<int64_t>(heads.size()), [&](int64_t i) {
    const auto [l, head] = heads[static_cast<size_t>(i)];
    const kernels::HeadStore& from = other.layers_[l].stores[head];
    const kernels::HeadStore& to = layers_[l].stores[head];
    backend_.CopyBytes(*other.memory_, from.keys_offset_bytes, *memory_, to.keys_offset_bytes,
                       from.n_slots * layers_[l].key_row_bytes);
    backend_.CopyBytes(*other.memory_, from.values_offset_bytes, *memory_, to.values_offset_bytes,
                       from.n_slots * layers_[l].value_row_bytes);
  });
}

void Placement::UseHugePages() {
  n_since_huge_pages_ = 0;
  used_.clear();
  for (const Layer& layer : layers_) {
    for (const kernels::HeadStore& store : layer.stores) {
      used_.push_back(
          {store.keys_offset_bytes, store.keys_offset_bytes + store.n_slots * layer.key_row_bytes});
    }
    for (const kernels::HeadStore& store : layer.stores) {
      used_.push_back({store.values_offset_bytes,
                       store.values_offset_bytes + store.n_slots * layer.value_row_bytes});
    }
  }
  backend_.UseHugePages(*memory_, used_);
}

}  // namespace winnow::cache
