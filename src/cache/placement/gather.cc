// Gathering rows. Every head has a region for the whole context; the rows of a compressed head fill
// no huge page there. While a cache keeps its size, its rows lie one after another instead, in
// separate address space behind all regions, where heads share pages.
#include <algorithm>

#include "cache/placement/placement.h"

namespace winnow::cache {
namespace {

// Gathered rows begin at cache lines.
constexpr int64_t kAlignment = 64;

int64_t Aligned(int64_t bytes) { return (bytes + kAlignment - 1) / kAlignment * kAlignment; }

// The number of rows for which a head with n_rows gets space. A step adds one row before it evicts
// one; a few more allow for methods that do not evict in every step.
int64_t RoomFor(int64_t n_rows) { return n_rows + std::min<int64_t>(16, 4 + n_rows / 64); }

void SetPlace(const kernels::HeadStore& place, kernels::HeadStore& store) {
  store.keys_offset_bytes = place.keys_offset_bytes;
  store.values_offset_bytes = place.values_offset_bytes;
}

}  // namespace

// Moves the rows of `store` to the offsets of `to`, which must not overlap them.
void Placement::MoveTo(const Layer& layer, const kernels::HeadStore& to,
                       kernels::HeadStore& store) {
  backend_.CopyBytes(*memory_, store.keys_offset_bytes, *memory_, to.keys_offset_bytes,
                     store.n_slots * layer.key_row_bytes);
  backend_.CopyBytes(*memory_, store.values_offset_bytes, *memory_, to.values_offset_bytes,
                     store.n_slots * layer.value_row_bytes);
  SetPlace(to, store);
}

int64_t Placement::GatheredBytes() const {
  int64_t bytes = 0;
  for (const Layer& layer : layers_) {
    for (const kernels::HeadStore& store : layer.stores) {
      const int64_t room = RoomFor(store.n_slots);
      bytes += Aligned(room * layer.key_row_bytes) + Aligned(room * layer.value_row_bytes);
    }
  }
  return bytes;
}

// Works layer by layer, so that at most one layer exists twice. `written`: there are rows to move.
void Placement::Gather(bool written) {
  shrunk_ = false;
  used_.clear();
  int64_t offset = gathering_offset_;
  const auto take = [&](int64_t bytes) {
    const int64_t first = offset;
    offset += Aligned(bytes);
    used_.push_back({first, offset});
    return first;
  };
  std::vector<kernels::HeadStore> places;
  for (Layer& layer : layers_) {
    places.resize(layer.stores.size());
    for (size_t head = 0; head < places.size(); ++head) {
      layer.max_rows[head] = RoomFor(layer.stores[head].n_slots);
      places[head].keys_offset_bytes = take(layer.max_rows[head] * layer.key_row_bytes);
    }
    for (size_t head = 0; head < places.size(); ++head) {
      places[head].values_offset_bytes = take(layer.max_rows[head] * layer.value_row_bytes);
    }
    backend_.UseHugePages(*memory_, used_);  // huge pages are cheaper before they are written
    for (size_t head = 0; head < places.size(); ++head) {
      if (!written) {
        SetPlace(places[head], layer.stores[head]);
        continue;
      }
      MoveTo(layer, places[head], layer.stores[head]);
      const auto own = OwnRegion(layer, static_cast<int64_t>(head));
      backend_.Release(*memory_, own.keys_offset_bytes, layer.key_region_bytes);
      backend_.Release(*memory_, own.values_offset_bytes, layer.value_region_bytes);
    }
  }
  gathered_ = true;
}

void Placement::Scatter() {
  for (Layer& layer : layers_) {
    int64_t end = gathering_offset_;
    for (size_t head = 0; head < layer.stores.size(); ++head) {
      kernels::HeadStore& store = layer.stores[head];
      end = std::max(end, store.values_offset_bytes + layer.max_rows[head] * layer.value_row_bytes);
      MoveTo(layer, OwnRegion(layer, static_cast<int64_t>(head)), store);
    }
    backend_.Release(*memory_, gathering_offset_,
                     end - gathering_offset_);  // what was moved so far
  }
  backend_.Release(*memory_, gathering_offset_, gathering_bytes_);
  gathered_ = false;
  n_since_huge_pages_ = kHugePagesAfter;  // rows now lie in small pages
}

bool Placement::ShouldGather() const {
  if (gathered_ || !shrunk_ || outgrew_gathering_) return false;
  const int64_t bytes = GatheredBytes();
  return bytes >= config_.gather_from_bytes && bytes <= gathering_bytes_;
}

void Placement::Arrange() {
  if (phase_ == Phase::kPrefill) {
    outgrew_gathering_ = false;  // after this prompt the cache may keep its size again
  } else if (ShouldGather()) {
    Gather(/*written=*/true);
  } else if (!outgrew_gathering_) {
    shrunk_ = false;  // do not check again in every step
  }
}

void Placement::MakeRoom(const Layer& layer, int64_t n) {
  if (!gathered_) return;
  for (size_t head = 0; head < layer.stores.size(); ++head) {
    if (layer.stores[head].n_slots + n <= layer.max_rows[head]) continue;
    outgrew_gathering_ = phase_ == Phase::kDecode;
    shrunk_ = true;  // as before gathering
    return Scatter();
  }
}

}  // namespace winnow::cache
