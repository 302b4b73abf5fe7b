#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "compression/method.h"

// Which entries of a KV head winnow (winnow.cc) keeps first, and how many where one ranking says
// it.
namespace winnow::compression::methods {

// One KV head before anything goes: which ranks stay in any case, and the order of the others.
struct HeadChoice {
  int64_t n = 0;
  std::vector<bool> keep;      // [rank]: stays whatever the head's size
  std::vector<int32_t> order;  // ranks of the call's other entries, from the first to keep
};
// How the budget of all heads is divided.
struct Shares {
  int64_t n_old = 0;     // entries from before the call that all heads keep together
  int64_t n_new = 0;     // the same of the call's entries, what stays in any case not counted
  int64_t n_held = 0;    // entries from before the call that there are
  int64_t n_rest = 0;    // rest rows of a head
  int64_t n_recent = 0;  // of the call, that stay in any case
  int64_t floor = 0;     // of the call's entries in a head, at least
};

// What earlier calls left keeps the share of the budget that its part of the text has. Layers after
// call.layer have not got the call's entries yet.
//   window  the call's newest entries that stay where there was no replay
Shares ShareBudget(const LayerCall& call, int64_t n_rest, int64_t window);

// Of a head with n entries, the newest n_new of them the call's.
//   scores [rank]
HeadChoice ChooseEntries(int64_t n, int64_t n_new, const Shares& shares,
                         std::span<const float> scores);

// Entries for each of n_heads heads, the same.
std::vector<int64_t> FillUniform(size_t n_heads, const Shares& shares);

// Entries for each head of the model, by the curves that a profile gives heads with n entries.
std::vector<int64_t> FillProfile(const ErrorProfile& profile, int64_t n, const Shares& shares);

// Entries for each head, `floor` at least and `total` in all, by one ranking of all scores.
//   scores [head][rank]
std::vector<int64_t> FillTopK(std::span<const HeadChoice> choices,
                              std::span<const std::vector<float>> scores, int64_t floor,
                              int64_t total);

}  // namespace winnow::compression::methods
