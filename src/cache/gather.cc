// Where the rows of heads lie. Every head has a region as long as the context; what a compressed
// one holds fills no large page there. While a cache is held at its size, its rows lie one after
// another instead, in address space of their own behind all regions; heads share pages there.
#include <algorithm>

#include "cache/cache_data.h"

namespace winnow::cache {
namespace {

// Gathered rows begin at lines of the processor's caches.
constexpr int64_t kAlignment = 64;

int64_t Aligned(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

// Rows that a head with n_rows gets room for. A step adds one before it evicts one; a few more let
// a method that does not evict in every step stay.
int64_t RoomFor(int64_t n_rows) { return n_rows + std::min<int64_t>(16, 4 + n_rows / 64); }

void SetPlace(const kernels::HeadStore& place, kernels::HeadStore& store) {
  store.keys_offset_bytes = place.keys_offset_bytes;
  store.values_offset_bytes = place.values_offset_bytes;
}

}  // namespace

kernels::HeadStore Cache::Data::OwnRegion(int64_t layer, int64_t head) const {
  const int64_t n_heads = config.shape.n_kv_heads;
  const int64_t layer_offset = layer * n_heads * (key_region_bytes + value_region_bytes);
  const int64_t values_offset = layer_offset + n_heads * key_region_bytes;
  return {.keys = memory.get(),
          .values = memory.get(),
          .keys_offset_bytes = layer_offset + head * key_region_bytes,
          .values_offset_bytes = values_offset + head * value_region_bytes,
          .n_slots = 0};
}

// The rows of `store` move to the offsets of `to`, where they do not overlap.
void Cache::Data::MoveTo(const kernels::HeadStore& to, kernels::HeadStore& store) {
  backend->CopyBytes(*memory, store.keys_offset_bytes, *memory, to.keys_offset_bytes,
                     store.n_slots * key_row_bytes);
  backend->CopyBytes(*memory, store.values_offset_bytes, *memory, to.values_offset_bytes,
                     store.n_slots * value_row_bytes);
  SetPlace(to, store);
}

int64_t Cache::Data::GatheredBytes() const {
  int64_t bytes = 0;
  for (const LayerData& layer : layers) {
    for (const kernels::HeadStore& store : layer.stores) {
      const int64_t room = RoomFor(store.n_slots);
      bytes += Aligned(room * key_row_bytes) + Aligned(room * value_row_bytes);
    }
  }
  return bytes;
}

// Layer by layer, so that one layer at most is there twice. `written`: rows are there to be moved.
void Cache::Data::Gather(bool written) {
  shrunk = false;
  used.clear();
  int64_t offset = gathering_offset;
  const auto take = [&](int64_t bytes) {
    const int64_t first = offset;
    offset += Aligned(bytes);
    used.push_back({first, offset});
    return first;
  };
  std::vector<kernels::HeadStore> places(layers[0].stores.size());
  for (size_t l = 0; l < layers.size(); ++l) {
    LayerData& layer = layers[l];
    for (size_t head = 0; head < places.size(); ++head) {
      layer.rooms[head] = RoomFor(layer.stores[head].n_slots);
      places[head].keys_offset_bytes = take(layer.rooms[head] * key_row_bytes);
    }
    for (size_t head = 0; head < places.size(); ++head) {
      places[head].values_offset_bytes = take(layer.rooms[head] * value_row_bytes);
    }
    backend->Settle(*memory, used);  // large pages are cheaper before they are written
    for (size_t head = 0; head < places.size(); ++head) {
      if (!written) {
        SetPlace(places[head], layer.stores[head]);
        continue;
      }
      MoveTo(places[head], layer.stores[head]);
      const auto own = OwnRegion(static_cast<int64_t>(l), static_cast<int64_t>(head));
      backend->Release(*memory, own.keys_offset_bytes, key_region_bytes);
      backend->Release(*memory, own.values_offset_bytes, value_region_bytes);
    }
  }
  gathered = true;
}

void Cache::Data::Spread() {
  for (size_t l = 0; l < layers.size(); ++l) {
    LayerData& layer = layers[l];
    int64_t end = gathering_offset;
    for (size_t head = 0; head < layer.stores.size(); ++head) {
      kernels::HeadStore& store = layer.stores[head];
      end = std::max(end, store.values_offset_bytes + layer.rooms[head] * value_row_bytes);
      MoveTo(OwnRegion(static_cast<int64_t>(l), static_cast<int64_t>(head)), store);
    }
    backend->Release(*memory, gathering_offset, end - gathering_offset);  // what was moved so far
  }
  backend->Release(*memory, gathering_offset, gathering_bytes);
  gathered = false;
  n_unsettled = kSettleAfter;  // rows lie in small pages now
}

bool Cache::Data::PaysToGather() const {
  if (gathered || !shrunk || outgrown) return false;
  const int64_t bytes = GatheredBytes();
  return bytes >= config.gather_from_bytes && bytes <= gathering_bytes;
}

void Cache::Data::Arrange(int64_t n) {
  if (n > 1) {
    outgrown = false;  // a prompt: what comes after it may stay at its size again
  } else if (PaysToGather()) {
    Gather(/*written=*/true);
  } else if (!outgrown) {
    shrunk = false;  // not asked again in every step
  }
}

void Cache::Data::MakeRoom(const LayerData& layer, int64_t n) {
  if (!gathered) return;
  for (size_t head = 0; head < layer.stores.size(); ++head) {
    if (layer.stores[head].n_slots + n <= layer.rooms[head]) continue;
    outgrown = n == 1;
    shrunk = true;  // as before it was gathered
    return Spread();
  }
}

}  // namespace winnow::cache
