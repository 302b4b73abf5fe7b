#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

#include "compression/method.h"
#include "compression/methods/ems_state.h"
#include "compression/parts.h"

// The classes of EMS as a step of decoding needs them (docs/methods/semantics.md#ems): made anew in
// every step, because every query changes the scores of all members.
namespace winnow::compression::methods::ems {

// The classes of one head, and what a step decides about them. The lists lie in the scratch: steps
// allocate nothing.
struct ClassTable {
  static constexpr int32_t kNone = -1;

  std::span<float> scores;      // [slot] s_GL
  std::span<float> importance;  // [row] the best s_GL of a member; below 0: not the row of a class
  std::span<int32_t> oldest;    // [row] the rank of the oldest member
  std::span<int32_t> next;      // [rank] the next newer member of the class; kNone: none
  std::span<int32_t> classes;   // rows of classes, ascending: as they lie in memory
  std::span<const Slot> order;  // [rank]
  cache::SlotRows rows;         // [slot]
  std::span<const int32_t> n_members;  // [row]

  int64_t n_sinks = 0;      // oldest entries, which are in no class
  int64_t n_old = 0;        // members and sinks before this step
  int64_t n_all = 0;        // with the one that was promoted
  int32_t lowest = kNone;   // row of the class that has to go, and is no longer in `classes`
  std::span<int32_t> open;  // rows of those it may join, of `classes`
  int32_t nearest = -1;     // index of the most similar one of these; -1: none is similar enough
  float similarity = 0;     // to that
  // Lengths of the keys of the two, where their rows are keys themselves; 0: directions.
  double lowest_length = 0;
  double nearest_length = 0;

  // The old member with the least score whose class has others; the oldest of equal ones.
  struct Member {
    int32_t rank = -1;  // -1: there is none
    float score = std::numeric_limits<float>::infinity();
  };
  Member weakest;

  Slot OldestSlot(int32_t row) const {
    return order[static_cast<size_t>(oldest[static_cast<size_t>(row)])];
  }
  int32_t joined() const { return open[static_cast<size_t>(nearest)]; }
};

// Room for the tables of some heads in the scratch, for one step.
class TableRoom {
 public:
  TableRoom(const LayerCall& call, int first_head, int n_heads);
  // Without classes. Not for ForEach.
  ClassTable MakeTable(const LayerCall& call, int head, const Protect& regions) const;
  std::span<float> key() const { return std::span(scratch_.floats).first(n_key_); }

 private:
  size_t Floats() const { return slot_stride_ + row_stride_; }  // of one table
  size_t Indices() const { return 2 * row_stride_ + slot_stride_; }

  Scratch& scratch_;
  int first_head_;
  size_t slot_stride_ = 0;
  size_t row_stride_ = 0;
  size_t n_key_ = 0;  // floats in front of the tables
};

// Fills in the classes of the n_all oldest entries but the sinks.
void Tabulate(const LayerCall& call, int head, const Factors& factors, ClassTable& table);
// Calls visit(rank, row) for the members of two classes, from the oldest to the newest.
template <class Visit>
void ForMembers(const ClassTable& table, int32_t row, int32_t other, const Visit& visit) {
  int32_t rank = table.oldest[static_cast<size_t>(row)];
  int32_t of_other = row == other ? ClassTable::kNone : table.oldest[static_cast<size_t>(other)];
  while (rank >= 0 || of_other >= 0) {
    const bool is_other = rank < 0 || (of_other >= 0 && of_other < rank);
    int32_t& next = is_other ? of_other : rank;
    const auto at = static_cast<size_t>(next);
    next = table.next[at];
    visit(at, is_other ? other : row);
  }
}
// Takes the least important class out; all others are open but for the n_protect most important
// ones. Of equally important ones that with the oldest member is taken.
void TakeLowest(ClassTable& table, int64_t n_protect);
// The weakest member after the least class joined the nearest.
ClassTable::Member WeakestAfterMerge(const ClassTable& table);

}  // namespace winnow::compression::methods::ems
