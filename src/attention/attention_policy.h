#pragma once

namespace winnow::attention {

// Which stored entries a row attends to if it is the only one of its sequence in the step. No
// effect in layers with taps.
struct AttentionPolicy {
  float top_p = 1;       // below 1: the smallest set whose weights reach this sum
  int dense_layers = 0;  // the first layers, which are attended in full

  bool Selects() const { return top_p < 1; }
  bool operator==(const AttentionPolicy&) const = default;
};

}  // namespace winnow::attention
