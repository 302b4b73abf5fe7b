#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "compression/method.h"

// The state that EMS keeps per entry, and the scores that follow from it
// (docs/methods/semantics.md#ems). Functions with a `head` touch only that head's state, so heads
// may be processed in parallel.
namespace winnow::compression::methods::ems {

// Column of doubles: it accumulates over the whole text (docs/methods/semantics.md#notation).
constexpr int kGlobal = 0;  // s_Glo: attention received so far
// Columns of halves: sums over one window, each with a relative rounding error of at most 1/2048.
constexpr int kPast = 0;     // attention received in the last complete window of queries
constexpr int kCurrent = 1;  // attention received in the current window
// Head number: how many of the oldest entries are members of classes or sinks. The others, the
// newest, are local.
constexpr int kMembers = 0;
// Layer number: queries in the current window.
constexpr int kCounter = 0;

// The cache itself stores a member's class (rows) and the length of its key (factors).
constexpr cache::StateShape kState = {
    .n_columns = 1, .n_half_columns = 2, .n_head_numbers = 1, .n_layer_numbers = 1};

int64_t Members(const LayerCall& call, int head);
void SetMembers(const LayerCall& call, int head, int64_t n);
// Corrects the counts of members where another method evicted and merged since the last call: the
// newest `n_newest` entries and those of the call are local unless they share a row, equally many
// in every head. Never raises a count.
void CountMembers(const LayerCall& call, int64_t n_newest);

// A row that was never merged is its entry's key, with factor 1. A merged row is a direction, and
// factors are the lengths of its members' keys. Factor() is what is stored for a length: a half,
// never 1.
inline bool IsKeyItself(const LayerCall& call, int head, Slot slot) {
  return call.cache.factors(call.layer, head)[static_cast<size_t>(slot)] == 1;
}
float Factor(double length);
// Length of an entry's key. Reads the row into `room` [key_dim] if the row is the key itself. Not
// to be called inside ForEach.
double KeyLength(const LayerCall& call, int head, Slot slot, std::span<float> room);

// How the queries of a call fall into windows.
struct Windows {
  bool prompt = false;  // the call is a whole prompt: its last `length` queries are the past window
  int length = 0;       // Lw
  int64_t n_complete = 0;  // windows that end within the call
  int64_t n_current = 0;   // queries in the window that has begun
};
// Counts the call's queries. Once per layer and call.
Windows Advance(const LayerCall& call, int length, bool prompt);
// Adds the call's attention to the sums of a head and returns their totals.
kernels::AttentionTotals Observe(const LayerCall& call, const Windows& windows, int head);

kernels::AttentionSums Sums(const LayerCall& call, int head);
kernels::AttentionTotals Totals(const kernels::AttentionSums& sums);
// s_Loc of an entry.
inline double Local(const kernels::AttentionSums& sums, Slot slot) {
  return double{sums.past[static_cast<size_t>(slot)]} + sums.current[static_cast<size_t>(slot)];
}
// s_Loc of a prompt's entries [slot], before rounding to half. Requires: the call is the whole
// prompt.
std::vector<double> PromptLocal(const LayerCall& call, int window, int head);

// s_GL: the larger of local attention and global attention scaled to the same sum; or only one of
// them (ablation).
enum class Attention { kBoth, kGlobalOnly, kLocalOnly };
// The factors that global and local attention are multiplied by.
struct Factors {
  double global = 0;
  double local = 1;
};
Factors FactorsFrom(Attention attention, const kernels::AttentionTotals& totals);

// s_GL of a prompt's entries, by rank. local: their s_Loc, [slot].
std::vector<double> PromptScores(const LayerCall& call, int head, Attention attention,
                                 std::span<const double> local);

}  // namespace winnow::compression::methods::ems
