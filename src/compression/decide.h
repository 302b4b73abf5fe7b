#pragma once

#include <functional>

#include "cache/cache.h"
#include "compression/method.h"
#include "kernels/ops.h"

namespace winnow::compression {

// Told of every plan. What they capture should fit a function's own storage: they are made for
// every layer of a decode step.
struct PlanHooks {
  std::function<void(const Plan& plan)> before = {};  // the cache is as it was before the plan
  std::function<void(const Plan& plan)> after = {};
};

// Lets a method decide about a layer whose attention is done, and the cache carry out its plans, as
// often as the method asks for it (PlanList::again; call.pass counts). Before the first eviction of
// a layer whose positions will mean something else than places in the text its keys go back to
// before RoPE, by `rope`. `plans` then holds those of the last pass.
// Requires: call.cache and call.state are those of `cache`.
void DecideAndApply(const Method& method, cache::Cache& cache, LayerCall call,
                    const kernels::RopeTable& rope, PlanList& plans, const PlanHooks& hooks = {});

// The same after the last layer of a prefill call, for all layers (Method::DecideAll), in pieces:
// call.pass counts them. Whether this was the last one. `hooks` and `plans` as above.
bool DecideSomeAndApply(const Method& method, cache::Cache& cache, const LayerCall& call,
                        PlanList& plans, const PlanHooks& hooks = {});
// All pieces.
void DecideAllAndApply(const Method& method, cache::Cache& cache, LayerCall call, PlanList& plans,
                       const PlanHooks& hooks = {});

}  // namespace winnow::compression
