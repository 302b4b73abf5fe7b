#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <vector>

#include "cache/index/layer_index.h"

namespace winnow::cache {

// Lists written out as spans, for one layer at a time, in buffers that all layers use in turn. A
// span is valid until its layer changes or the same list of another layer is requested. Several
// threads may request lists of one layer (methods decide about several heads at a time, and heads
// share lists). Capped, CoverEntries and Trim are not thread-safe.
class ListViews {
 public:
  explicit ListViews(size_t n_heads)
      : orders_(n_heads), positions_(n_heads), ranks_(n_heads), distances_(n_heads) {}

  // The lists of a layer.
  struct Source {
    int layer = 0;
    const LayerIndex* index = nullptr;
  };
  std::span<const Slot> Order(const Source& source, size_t head);          // [rank]
  std::span<const Position> Positions(const Source& source, size_t head);  // [slot]
  std::span<const int32_t> Ranks(const Source& source, size_t head);       // [slot]

  // Capped positions: the query is at query_position, and every entry at its distance from `query`
  // before it, but at most `cap`.
  struct Distances {
    Position query = 0;
    Position cap = 0;
    Position query_position = 0;
  };
  std::span<const Position> Capped(const Source& source, size_t head, const Distances& distances);

  // Call after a head grew to n entries. Many views are the list 0, 1, 2, ...; it is made as long
  // as the longest head, so that it does not move while no head grows.
  void CoverEntries(size_t n) { max_entries_ = std::max(max_entries_, n); }
  // Frees memory if it is much more than heads of at most max_entries need.
  void Trim(size_t max_entries);
  int64_t allocated_bytes() const;

 private:
  struct View {
    int layer = -1;
    uint64_t version = 0;
    std::vector<int32_t> values;
  };
  // Requires: mutex_ is locked.
  std::span<const int32_t> Ascending(size_t n);
  // The view of a head's list; fill(list, values) fills it if it holds another list. Requires:
  // mutex_ is locked, or a single thread.
  template <class Fill>
  std::span<const int32_t> Filled(const Source& source, size_t head, std::vector<View>& views,
                                  Fill fill);

  std::vector<View> orders_, positions_, ranks_, distances_;  // [list]
  std::vector<int32_t> ascending_;
  size_t max_entries_ = 0;
  std::mutex mutex_;
};

}  // namespace winnow::cache
