#pragma once

namespace winnow::attention {

// Which of the stored entries a row that is alone in its step attends to. No effect in layers with
// taps.
struct AttentionPolicy {
  float top_p = 1;       // below 1: the smallest set whose weights reach this sum
  int dense_layers = 0;  // first layers, attended in full

  bool Selects() const { return top_p < 1; }
  bool operator==(const AttentionPolicy&) const = default;
};

}  // namespace winnow::attention
