#include "compression/decide.h"

#include <algorithm>

#include "base/check.h"

namespace winnow::compression {
namespace {

int64_t LongestHead(const LayerCall& call) {
  int64_t longest = 0;
  for (int head = 0; head < call.n_kv_heads(); ++head) {
    longest = std::max(longest, call.n_slots(head));
  }
  return longest;
}

void ApplyAll(cache::Cache& cache, const PlanList& plans, const PlanHooks& hooks) {
  for (const Plan& plan : plans.plans()) {
    if (hooks.before) hooks.before(plan);
    cache.Apply(plan);
    if (hooks.after) hooks.after(plan);
  }
}

}  // namespace

void DecideAndApply(const Method& method, cache::Cache& cache, LayerCall call,
                    const kernels::RopeTable& rope, PlanList& plans, const PlanHooks& hooks) {
  if (cache.config().storage.positions != PositionMode::kOriginal &&
      cache.keys_rotated(call.layer) && LongestHead(call) > call.budget) {
    cache.Unrotate(call.layer, rope);
  }
  for (call.pass = 0; call.pass == 0 || plans.again; ++call.pass) {
    plans.Clear();
    method.Decide(call, plans);
    ApplyAll(cache, plans, hooks);
  }
}

bool DecideSomeAndApply(const Method& method, cache::Cache& cache, const LayerCall& call,
                        PlanList& plans, const PlanHooks& hooks) {
  plans.Clear();
  method.DecideAll(call, plans);
  WINNOW_CHECK(plans.plans().empty() ||
               cache.config().storage.positions == PositionMode::kOriginal);
  ApplyAll(cache, plans, hooks);
  return !plans.again;
}

}  // namespace winnow::compression
