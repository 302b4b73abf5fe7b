#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/check.h"

namespace winnow::cache {

// Moves the last of `n` places into the dropped ones, so that 0..n - n_dropped - 1 are occupied.
// `place_of[i]` becomes the new place of i, or kDropped if dropped; `from` and `to` list the moves.
constexpr int32_t kDropped = -1;
struct Moves {
  std::vector<int32_t> place_of;
  std::vector<int32_t> from;
  std::vector<int32_t> to;

  void FillHoles(size_t n, std::span<const int32_t> dropped) {
    place_of.resize(n);
    for (size_t i = 0; i < n; ++i) place_of[i] = static_cast<int32_t>(i);
    for (const int32_t place : dropped) {
      WINNOW_CHECK(place >= 0 && static_cast<size_t>(place) < n &&
                   place_of[static_cast<size_t>(place)] != kDropped);
      place_of[static_cast<size_t>(place)] = kDropped;
    }
    from.clear();
    to.clear();
    const size_t n_left = n - dropped.size();
    size_t mover = n_left;
    for (const int32_t hole : dropped) {
      if (static_cast<size_t>(hole) >= n_left) continue;
      while (place_of[mover] == kDropped) ++mover;
      from.push_back(static_cast<int32_t>(mover));
      to.push_back(hole);
      place_of[mover] = hole;
      ++mover;
    }
  }

  // The same for one dropped place; does not set place_of.
  void FillHole(size_t n, int32_t dropped) {
    WINNOW_CHECK(dropped >= 0 && static_cast<size_t>(dropped) < n);
    from.clear();
    to.clear();
    const auto last = static_cast<int32_t>(n - 1);
    if (dropped == last) return;
    from.push_back(last);
    to.push_back(dropped);
  }

  template <class T>
  void ApplyMoves(std::vector<T>& values, size_t n_left) const {
    for (size_t i = 0; i < from.size(); ++i) {
      values[static_cast<size_t>(to[i])] = values[static_cast<size_t>(from[i])];
    }
    values.resize(n_left);
  }
};

}  // namespace winnow::cache
