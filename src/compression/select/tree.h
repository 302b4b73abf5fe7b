#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "compression/numbers.h"
#include "compression/select/select.h"

namespace winnow::compression::select {

// TreeKV's rule on a list of items from the oldest to the newest: one of the two neighbours at the
// pointer is evicted, and the pointer moves on.
class Tree {
 public:
  struct Config {
    int64_t pointer = 0;  // where the last tree stopped
    Cycle cycle = Cycle::kUnit;
    bool select_left = false;
  };
  // `list` is a buffer.
  Tree(const Config& config, std::vector<int32_t>& list)
      : c_(config), pointer_(config.pointer), list_(list) {
    list_.clear();
  }

  void Append(int32_t thing) { list_.push_back(thing); }

  // Removes an item and returns it; on a tie the older. scores: [item]. Requires: size() > 0.
  int32_t Evict(std::span<const double> scores) {
    const int64_t n_pairs = size() - 1;
    auto victim = list_.begin();
    if (n_pairs > 0) {
      pointer_ %= n_pairs;
      const auto left = list_.begin() + pointer_;
      const auto right = left + 1;
      const bool left_stays = c_.select_left || ScoreLess(scores[static_cast<size_t>(*right)],
                                                          scores[static_cast<size_t>(*left)]);
      victim = left_stays ? right : left;
      pointer_ = (pointer_ + (c_.cycle == Cycle::kUnit ? 1 : 2)) % n_pairs;
    }
    const int32_t gone = *victim;
    list_.erase(victim);
    return gone;
  }
  int64_t size() const { return static_cast<int64_t>(list_.size()); }
  int64_t pointer() const { return pointer_; }

 private:
  Config c_;
  int64_t pointer_;
  std::vector<int32_t>& list_;
};

}  // namespace winnow::compression::select
