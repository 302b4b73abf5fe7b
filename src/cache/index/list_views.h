#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <vector>

#include "cache/index/layer_index.h"

namespace winnow::cache {

// Lists written out for those who want a span: one layer's at a time, in memory that all layers
// take in turns. A span is valid until its layer changes or the same is asked of another layer.
// Several threads may ask for lists of one layer (methods decide for several heads at a time, and
// heads share lists); Capped, CoverEntries and Trim are for one.
class ListViews {
 public:
  explicit ListViews(size_t n_heads)
      : orders_(n_heads), positions_(n_heads), ranks_(n_heads), distances_(n_heads) {}

  // A layer's lists.
  struct Source {
    int layer = 0;
    const LayerIndex* index = nullptr;
  };
  std::span<const Slot> Order(const Source& source, size_t head);          // [rank]
  std::span<const Position> Positions(const Source& source, size_t head);  // [slot]
  std::span<const int32_t> Ranks(const Source& source, size_t head);       // [slot]

  // Capped positions: the query at query_position, and every entry at its distance from `query`,
  // at most `cap`, before it.
  struct Distances {
    Position query = 0;
    Position cap = 0;
    Position query_position = 0;
  };
  std::span<const Position> Capped(const Source& source, size_t head, const Distances& distances);

  // After a head grew to n entries: the list of ascending numbers, which many views are, is as long
  // as the longest head, so that it does not move as long as no head grows.
  void CoverEntries(size_t n) { max_entries_ = std::max(max_entries_, n); }
  // No head has more than max_entries: gives memory back where it is much more than they need.
  void Trim(size_t max_entries);
  int64_t allocated_bytes() const;

 private:
  struct View {
    int layer = -1;
    uint64_t version = 0;
    std::vector<int32_t> values;
  };
  // Requires: mutex_ is held.
  std::span<const int32_t> Ascending(size_t n);
  // The view of a head's list, filled by fill(list, values) if it is another one's. Requires: as
  // above, or one thread.
  template <class Fill>
  std::span<const int32_t> Filled(const Source& source, size_t head, std::vector<View>& views,
                                  Fill fill);

  std::vector<View> orders_, positions_, ranks_, distances_;  // [list]
  std::vector<int32_t> ascending_;
  size_t max_entries_ = 0;
  std::mutex mutex_;
};

}  // namespace winnow::cache
