#pragma once

#include <algorithm>
#include <cstdint>
#include <span>

#include "compression/method.h"

// What EMS keeps about every entry, and the scores that follow from it (methods.md 1.5.1).
// Functions with a `head` touch that head's state only: heads may be done at the same time.
namespace winnow::compression::methods::ems {

// Columns.
constexpr int kGlobal = 0;   // s_Glo: attention received so far
constexpr int kPast = 1;     // attention received in the last whole window of queries
constexpr int kCurrent = 2;  // attention received in the window that has begun
constexpr int kNorm = 3;     // length of the key as it was; 0: a local token, no member of a class
// Layer number: queries in the window that has begun.
constexpr int kCounter = 0;

constexpr cache::StateShape kState = {.n_columns = 4, .n_layer_numbers = 1};

// Entries that are members of classes: all but the local ones, which are the newest.
int64_t Members(const LayerCall& call, int head);
// Whether more than `window` entries are local.
bool HasReady(const LayerCall& call, int head, int window);

// Makes entries members of classes: notes the lengths of their keys.
void Found(const LayerCall& call, int head, std::span<const Slot> slots);

// What turns the row of an entry into the direction of its class. A row that was never merged is
// the key itself, with factor 1; a merged one is a direction, and the factors are the lengths.
double ToDirection(const LayerCall& call, int head, Slot slot);

// How the queries of a call fall into windows.
struct Windows {
  bool prompt = false;     // its last queries are the past of what follows
  int length = 0;          // Lw
  int64_t n_complete = 0;  // windows that end in the call
  int64_t n_current = 0;   // its queries after the last of them
};
// Counts the call's queries.
Windows Advance(const LayerCall& call, int length, bool prompt);
// Adds the call's attention to the sums of a head.
void Observe(const LayerCall& call, const Windows& windows, int head);

// s_Loc of the entries of a head.
struct LocalScores {
  std::span<const double> past, current;
  LocalScores() = default;
  LocalScores(const LayerCall& call, int head)
      : past(call.column(head, kPast)), current(call.column(head, kCurrent)) {}
  double operator[](Slot slot) const {
    return past[static_cast<size_t>(slot)] + current[static_cast<size_t>(slot)];
  }
};

// s_GL: local attention, or global attention brought to the same sum, whichever is more; or one of
// them alone (ablation).
enum class Attention { kBoth, kInAll, kOfLate };
struct Scores {
  std::span<const double> global;
  LocalScores local;
  double f = 0;  // what global attention is multiplied by
  double l = 1;  // what local attention is multiplied by
  Scores() = default;
  Scores(const LayerCall& call, int head, Attention attention);
  double operator[](Slot slot) const {
    return std::max(f * global[static_cast<size_t>(slot)], l * local[slot]);
  }
};

}  // namespace winnow::compression::methods::ems
