#pragma once

#include <functional>

#include "cache/cache.h"
#include "compression/method.h"
#include "kernels/ops.h"

namespace winnow::compression {

// Called around every plan. Captures should fit std::function's inline storage: hooks are created
// for every layer of a decode step, which must not allocate.
struct PlanHooks {
  std::function<void(const Plan& plan)> before = {};  // the cache is still as before the plan
  std::function<void(const Plan& plan)> after = {};
};

// Runs a method on a layer whose attention is done and applies its plans to the cache, again while
// the method asks for it (PlanList::again; counted in call.pass). If the layer will evict and its
// positions are not places in the text, its keys are first rotated back to before RoPE, with
// `rope`. Afterwards `plans` holds those of the last pass. Requires: call.cache and call.state are
// those of `cache`.
void DecideAndApply(const Method& method, cache::Cache& cache, LayerCall call,
                    const kernels::RopeTable& rope, PlanList& plans, const PlanHooks& hooks = {});

// Runs one piece of Method::DecideAll, after the last layer of a prefill call, and applies its
// plans. The caller counts the pieces in call.pass. Returns whether this was the last one. `hooks`
// and `plans` as above.
bool DecideSomeAndApply(const Method& method, cache::Cache& cache, const LayerCall& call,
                        PlanList& plans, const PlanHooks& hooks = {});

}  // namespace winnow::compression
