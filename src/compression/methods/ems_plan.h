#pragma once

#include "compression/method.h"
#include "compression/methods/ems_classes.h"

// What EMS decides, as entries of a plan.
namespace winnow::compression::methods::ems {

// From now on a member of the class stored in `row`; `length` is that of its key.
void Share(const LayerCall& call, int head, Slot slot, Slot row, double length,
           cache::HeadPlan& plan);
// Adds a source of the merge that was begun last: the direction and the value of a class.
// `length` is that of the row; 0 where the row is a direction, or a zero key.
void AddSource(Slot row, double length, double weight, cache::HeadPlan& plan);

// All members of the least important class go.
void EvictLowest(const ClassTable& table, cache::HeadPlan& plan);
// The least important class merges into the most similar other one.
void MergeLowest(const LayerCall& call, int head, const ClassTable& table, cache::HeadPlan& plan);

}  // namespace winnow::compression::methods::ems
