#pragma once

#include <cstdint>
#include <span>

#include "compression/method.h"
#include "compression/methods/ems_state.h"

// The classes of EMS as a step of decoding needs them (methods.md 1.5.3): made anew in every step,
// because every query changes the scores of all members.
namespace winnow::compression::methods::ems {

// The classes of one head, and what a step decides about them. The lists lie in the scratch: steps
// allocate nothing.
struct ClassTable {
  std::span<int32_t> n_members;  // [row] 0: not the row of a class; nothing else is said of it then
  std::span<double> importance;  // [row] the best s_GL of a member
  std::span<int32_t> oldest;     // [row] the rank of the oldest one
  std::span<int32_t> newest;     // [row] the rank of the newest one
  std::span<int32_t> classes;    // rows of classes, ascending: as they lie in memory
  Scores scores;                 // of the members

  int64_t n_old = 0;        // members before this step
  int64_t n_all = 0;        // with the one that was promoted
  int32_t least = -1;       // row of the class that has to go, and is no longer in `classes`
  std::span<int32_t> open;  // rows of those it may join, of `classes`
  int32_t nearest = -1;     // index of the most similar one of these; -1: none is similar enough
  float similarity = 0;     // to that
};

// Room for the tables of some heads in the scratch, for one step.
class TableRoom {
 public:
  TableRoom(const LayerCall& call, int first_head, int n_heads);
  ClassTable Of(int head) const;  // empty

 private:
  size_t Indices() const { return 4 * stride_; }  // of one table

  Scratch& scratch_;
  int first_head_;
  size_t n_rows_ = 0;  // of the head with the most
  size_t stride_ = 0;  // of the lists of indices
};

// Fills in the classes of the n_all oldest entries.
void Tabulate(const LayerCall& call, int head, Attention attention, ClassTable& table);
// Takes the least important class out; all others are open but for the n_protect most important
// ones. Of equally important ones that with the oldest member is taken.
void TakeLeast(ClassTable& table, int n_protect);

}  // namespace winnow::compression::methods::ems
