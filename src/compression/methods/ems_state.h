#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "compression/method.h"

// What EMS keeps about every entry, and the scores that follow from it
// (docs/methods/semantics.md#ems). Functions with a `head` touch that head's state only: heads may
// be done at the same time.
namespace winnow::compression::methods::ems {

// Column of doubles: it grows as long as the text does (docs/methods/semantics.md#notation).
constexpr int kGlobal = 0;  // s_Glo: attention received so far
// Columns of halves: sums over a window, rounded by 1/2048 of themselves at most.
constexpr int kPast = 0;     // attention received in the last whole window of queries
constexpr int kCurrent = 1;  // attention received in the window that has begun
// Head number: entries that are members of classes, or sinks, the oldest of these. All others are
// local and the newest.
constexpr int kMembers = 0;
// Layer number: queries in the window that has begun.
constexpr int kCounter = 0;

// The table of the cache holds the other two: the class of a member and the length of its key.
constexpr cache::StateShape kState = {
    .n_columns = 1, .n_half_columns = 2, .n_head_numbers = 1, .n_layer_numbers = 1};

int64_t Members(const LayerCall& call, int head);
void SetMembers(const LayerCall& call, int head, int64_t n);
// Makes the entries before the newest `n_newest` and those of the call members, and the newest ones
// local but for those that share a row; as many are local in every head. What is kept from call to
// call does not know what another method evicted and merged.
void CountMembers(const LayerCall& call, int64_t n_newest);

// A row that was never merged is its entry's key, with factor 1. A merged one is a direction, and
// the factors are the lengths of its members' keys: Factor is what is stored for a length (a half,
// never 1).
inline bool IsKeyItself(const LayerCall& call, int head, Slot slot) {
  return call.cache.factors(call.layer, head)[static_cast<size_t>(slot)] == 1;
}
float Factor(double length);
// Length of an entry's key. Reads the row where it is the key itself, to `room` [key_dim]: not for
// ForEach.
double KeyLength(const LayerCall& call, int head, Slot slot, std::span<float> room);

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
kernels::AttentionTotals Observe(const LayerCall& call, const Windows& windows, int head);

kernels::AttentionSums Sums(const LayerCall& call, int head);
kernels::AttentionTotals Totals(const kernels::AttentionSums& sums);
// s_Loc of an entry.
inline double Local(const kernels::AttentionSums& sums, Slot slot) {
  return double{sums.past[static_cast<size_t>(slot)]} + sums.current[static_cast<size_t>(slot)];
}
// s_Loc of a prompt's entries [slot], before it is rounded. Requires: the call is the prompt's.
std::vector<double> PromptLocal(const LayerCall& call, int window, int head);

// s_GL: local attention, or global attention brought to the same sum, whichever is more; or one of
// them alone (ablation).
enum class Attention { kBoth, kInAll, kOfLate };
// What global and local attention are multiplied by.
struct Factors {
  double global = 0;
  double local = 1;
};
Factors FactorsFrom(Attention attention, const kernels::AttentionTotals& totals);

// s_GL of a prompt's entries, by rank, from their s_Loc [slot].
std::vector<double> PromptScores(const LayerCall& call, int head, Attention attention,
                                 std::span<const double> local);

}  // namespace winnow::compression::methods::ems
