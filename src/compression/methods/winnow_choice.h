#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "compression/method.h"

// Which entries of a KV head winnow (winnow.cc) keeps first, and how many in allocations that need
// no error curves of the prompt.
namespace winnow::compression::methods {

// One KV head before any eviction: the ranks that always stay, and the order of the others.
struct HeadChoice {
  int64_t n = 0;
  std::vector<bool> keep;      // [rank]: stays whatever the head's size
  std::vector<int32_t> order;  // ranks of the call's other entries, the first to keep first
};
// How the budget of all heads is divided.
struct Shares {
  int64_t n_old = 0;     // entries of earlier calls that all heads together keep
  int64_t n_new = 0;     // entries of this call that all heads together keep, besides n_recent
  int64_t n_held = 0;    // entries of earlier calls that all heads together hold now
  int64_t n_rest = 0;    // rest rows per head
  int64_t n_recent = 0;  // newest entries of this call, per head, that always stay
  int64_t floor = 0;     // minimum of this call's entries per head, besides n_recent
};

// Divides the budget. Entries of earlier calls get the share that their part of the text has.
// Layers after call.layer do not hold the call's entries yet.
//  window  newest entries of the call that always stay if there was no replay
Shares ShareBudget(const LayerCall& call, int64_t n_rest, int64_t window);

// For a head with n entries, of which the newest n_new are the call's.
//  scores [rank]
HeadChoice ChooseEntries(int64_t n, int64_t n_new, const Shares& shares,
                         std::span<const float> scores);

// The same number of entries for each of n_heads heads.
std::vector<int64_t> FillUniform(size_t n_heads, const Shares& shares);

// Entries for each head of the model, by the profile's curves for heads with n entries.
std::vector<int64_t> FillProfile(const ErrorProfile& profile, int64_t n, const Shares& shares);

// Entries for each head, at least `floor` (or all) and `total` together, by one ranking of all
// scores.
//  scores [head][rank]
std::vector<int64_t> FillTopK(std::span<const HeadChoice> choices,
                              std::span<const std::vector<float>> scores, int64_t floor,
                              int64_t total);

}  // namespace winnow::compression::methods
