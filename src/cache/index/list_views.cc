#include "cache/index/list_views.h"

#include <algorithm>
#include <mutex>
#include <numeric>

#include "base/check.h"
#include "cache/index/growth.h"

namespace winnow::cache {
namespace {

void Resize(std::vector<int32_t>& values, size_t n) {
  if (n > values.size()) GrowBy(values, n - values.size());
  values.resize(n);
}

}  // namespace

std::span<const int32_t> ListViews::Ascending(size_t n) {
  WINNOW_CHECK(n <= max_entries_);
  if (ascending_.size() < n) {
    Resize(ascending_, max_entries_);
    std::iota(ascending_.begin(), ascending_.end(), 0);
  }
  return std::span<const int32_t>(ascending_).first(n);
}

template <class Fill>
std::span<const int32_t> ListViews::Filled(const Source& source, size_t head,
                                           std::vector<View>& views, Fill fill) {
  View& view = views[source.index->ListNumber(head)];
  if (view.layer != source.layer || view.version != source.index->version()) {
    const EntryList& list = source.index->head(head);
    view.layer = source.layer;
    view.version = source.index->version();
    Resize(view.values, list.size());
    fill(list, std::span<int32_t>(view.values));
  }
  return view.values;
}

std::span<const Slot> ListViews::Order(const Source& source, size_t head) {
  const std::scoped_lock lock(mutex_);
  const EntryList& list = source.index->head(head);
  if (list.slots().is_identity()) return Ascending(list.size());
  return Filled(source, head, orders_,
                [](const EntryList& from, std::span<int32_t> out) { from.slots().CopyTo(out); });
}

std::span<const Position> ListViews::Positions(const Source& source, size_t head) {
  const std::scoped_lock lock(mutex_);
  const EntryList& list = source.index->head(head);
  if (list.slots_are_positions()) return Ascending(list.size());
  return Filled(source, head, positions_,
                [](const EntryList& from, std::span<int32_t> out) { from.CopyPositionsTo(out); });
}

std::span<const int32_t> ListViews::Ranks(const Source& source, size_t head) {
  const std::scoped_lock lock(mutex_);
  const EntryList& list = source.index->head(head);
  if (list.slots().is_identity()) return Ascending(list.size());
  return Filled(source, head, ranks_, [](const EntryList& from, std::span<int32_t> out) {
    from.slots().CopyRanksTo(out);
  });
}

std::span<const Position> ListViews::Capped(const Source& source, size_t head,
                                            const Distances& distances) {
  View& view = distances_[source.index->ListNumber(head)];
  view.layer = -1;  // every query has other distances
  return Filled(source, head, distances_, [&](const EntryList& from, std::span<int32_t> out) {
    from.CopyPositionsTo(out);
    for (Position& position : out) {
      position = distances.query_position - std::min(distances.query - position, distances.cap);
    }
  });
}

void ListViews::Trim(size_t max_entries) {
  constexpr size_t kSlack = 1024;
  max_entries_ = max_entries;
  const auto trim = [&](std::vector<int32_t>& values) {
    if (values.capacity() > 2 * max_entries + kSlack) std::vector<int32_t>().swap(values);
  };
  for (std::vector<View>* views : {&orders_, &positions_, &ranks_, &distances_}) {
    for (View& view : *views) {
      trim(view.values);
      if (view.values.empty()) view.layer = -1;
    }
  }
  trim(ascending_);
}

int64_t ListViews::allocated_bytes() const {
  size_t n = ascending_.capacity();
  for (const std::vector<View>* views : {&orders_, &positions_, &ranks_, &distances_}) {
    for (const View& view : *views) n += view.values.capacity();
  }
  return static_cast<int64_t>(n * sizeof(int32_t));
}

}  // namespace winnow::cache
