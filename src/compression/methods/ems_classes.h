#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <span>

#include "compression/method.h"
#include "compression/methods/ems_state.h"
#include "compression/parts.h"

// The classes of EMS as a decode step needs them (docs/methods/semantics.md#ems). Rebuilt in every
// step, because every query changes the scores of all members.
namespace winnow::compression::methods::ems {

// The classes of one head, and the step's decision about them. The lists lie in Scratch, so that
// steps allocate nothing.
struct ClassTable {
  static constexpr int32_t kNone = -1;

  std::span<float> scores;             // [slot] s_GL
  std::span<float> importance;         // [row] largest s_GL of a member; below 0: not a class's row
  std::span<int32_t> oldest;           // [row] rank of the oldest member
  std::span<int32_t> next;             // [rank] the class's next newer member; kNone: none
  std::span<int32_t> classes;          // rows of classes, ascending, i.e. in memory order
  std::span<const Slot> order;         // [rank]
  cache::SlotRows rows;                // [slot]
  std::span<const int32_t> n_members;  // [row]

  int64_t n_sinks = 0;      // oldest entries, which belong to no class
  int64_t n_old = 0;        // members and sinks before this step
  int64_t n_all = 0;        // the same with the promoted entry
  int32_t lowest = kNone;   // row of the least important class, removed from `classes`
  std::span<int32_t> open;  // rows of `classes` that it may merge into
  int32_t nearest = -1;  // index into `open` of the most similar class; -1: none is similar enough
  float similarity = 0;  // similarity of the two
  // Key lengths of the two classes where their rows are unmerged keys; 0: the row is a direction.
  double lowest_length = 0;
  double nearest_length = 0;

  // The old member with the lowest score in a class of two or more; of equal ones the oldest.
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

// Allocates the tables of some heads in Scratch, for one step.
class TableBuffers {
 public:
  TableBuffers(const LayerCall& call, int first_head, int n_heads);
  // A table without classes; Tabulate fills it in. Not to be called inside ForEach.
  ClassTable MakeTable(const LayerCall& call, int head, const Protect& regions) const;
  // Buffer for KeyLength, [key_dim].
  std::span<float> key() const { return std::span(scratch_.floats).first(n_key_); }

 private:
  size_t Floats() const { return slot_stride_ + row_stride_; }  // of one table
  size_t Indices() const { return 2 * row_stride_ + slot_stride_; }

  Scratch& scratch_;
  int first_head_;
  size_t slot_stride_ = 0;
  size_t row_stride_ = 0;
  size_t n_key_ = 0;  // floats before the tables
};

// Builds the classes of the n_all oldest entries except the sinks.
void Tabulate(const LayerCall& call, int head, const Factors& factors, ClassTable& table);
// Calls visit(rank, row) for the members of two classes (or of one, given twice), oldest first.
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
// Removes the least important class (of equal ones that with the oldest member) and sets `lowest`.
// The others are open, except the n_protect most important ones.
void PopLeastImportant(ClassTable& table, int64_t n_protect);
// The member to evict next, after the least important class merged into the nearest.
ClassTable::Member WeakestAfterMerge(const ClassTable& table);

}  // namespace winnow::compression::methods::ems
