#pragma once

#include "compression/method.h"
#include "compression/methods/ems_classes.h"

// Writes EMS's decisions into a plan.
namespace winnow::compression::methods::ems {

// Makes an entry a member of the class stored in `row`. `length` is that of its key.
void Share(const LayerCall& call, int head, Slot slot, Slot row, double length,
           cache::HeadPlan& plan);
// Adds a class's direction and value as a source of the plan's last merge. `length` is that of the
// row; 0 where the row is a direction, or a zero key.
void AddSource(Slot row, double length, double weight, cache::HeadPlan& plan);

// Evicts all members of the least important class.
void EvictLowest(const ClassTable& table, cache::HeadPlan& plan);
// Merges the least important class into the most similar other one.
void MergeLowest(const LayerCall& call, int head, const ClassTable& table, cache::HeadPlan& plan);

}  // namespace winnow::compression::methods::ems
