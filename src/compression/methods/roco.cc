// RoCo (arXiv:2402.06262): evicts the entry with the lowest mean attention, except entries whose
// attention varies much over time.
// The authors encode a prompt in blocks after the first `budget` tokens; --prefill-chunk does that.
// Without it the whole prompt is read before the first eviction.
#include <algorithm>

#include "compression/budget/budget.h"
#include "compression/methods/methods.h"
#include "compression/score/score.h"
#include "compression/select/select.h"

namespace winnow::compression::methods {
namespace {

struct RocoConfig {
  select::GateConfig gate;   // [authors' code]
  CountOrShare recent = 10;  // newest tokens that always stay  [same]
  int sinks = 0;             // first tokens that always stay  [same]
  int prefill_sinks = 4;     // [same]
};

template <class Visitor>
void Visit(RocoConfig& c, Visitor& v) {
  Visit(c.gate, v);
  v("recent", c.recent, kRecentHelp);
  v("sinks", c.sinks, "first tokens that always stay", Range{0, 1 << 20});
  v("prefill_sinks", c.prefill_sinks, "the same in prefill", Range{0, 1 << 20});
}

Result<MethodPtr> Make(const RocoConfig& c) {
  const Regions decode = {.sinks = c.sinks, .recent = c.recent};
  const Regions prefill = {.sinks = c.prefill_sinks, .recent = c.recent};
  select::GateConfig gate = c.gate;
  gate.scores_are_means = true;
  return Compose({.min_budget = std::max(decode.MinBudget(), prefill.MinBudget()),
                  .score = score::RunningMean({.reduce = c.gate.reduce}),
                  .budget = budget::Uniform(),
                  .select = select::Gate(gate),
                  .merge = nullptr,
                  .protect =
                      [prefill](const Protect& p, const LayerCall& call) {
                        return call.phase == Phase::kPrefill ? prefill.Under(call.budget) : p;
                      },
                  .protected_entries = decode,
                  .when = When::kStep});
}

Promise Promises(const RocoConfig& c, int64_t budget) {
  // A prompt and a decode step protect different numbers of sinks: the smaller one always stays,
  // and of a share that includes the sinks the smaller rest.
  const Protect always = Regions{std::max(c.sinks, c.prefill_sinks), c.recent}.Under(budget);
  return {.exact = true,
          .sinks = std::min(c.sinks, c.prefill_sinks),
          .recent = always.recent,
          .prompt_by_steps = c.prefill_sinks == c.sinks};
}

}  // namespace

MethodEntry Roco() {
  return Entry<RocoConfig, Make, Promises>(
      "roco", "mean attention; entries whose attention varies most are exempt",
      "RoCo, arXiv:2402.06262", {"prefill_ratio=0.3,prefill_sinks=0"});
}

}  // namespace winnow::compression::methods
