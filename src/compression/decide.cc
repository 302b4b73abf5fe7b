#include "compression/decide.h"

#include <algorithm>

namespace winnow::compression {
namespace {

int64_t LongestHead(const LayerCall& call) {
  int64_t longest = 0;
  for (int head = 0; head < call.n_kv_heads(); ++head) {
    longest = std::max(longest, call.n_slots(head));
  }
  return longest;
}

}  // namespace

void DecideAndApply(const Method& method, cache::Cache& cache, LayerCall call,
                    const kernels::RopeTable& rope, PlanList& plans, const PlanHooks& hooks) {
  if (cache.config().positions != PositionMode::kOriginal && cache.keys_rotated(call.layer) &&
      LongestHead(call) > call.budget) {
    cache.Unrotate(call.layer, rope);
  }
  for (call.pass = 0; call.pass == 0 || plans.again; ++call.pass) {
    plans.Clear();
    method.Decide(call, plans);
    for (const Plan& plan : plans.plans()) {
      if (hooks.before) hooks.before(plan);
      cache.Apply(plan);
      if (hooks.after) hooks.after(plan);
    }
  }
}

}  // namespace winnow::compression
