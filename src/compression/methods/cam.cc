// CaM (cache merging, ICML 2024): keeps the first and the newest tokens, as StreamingLLM does. The
// value of an evicted token is spread over the tokens that follow it, with a probability that grows
// with the attention it received.
// Differs from the authors' code: where fewer than `reach` tokens follow, these share the value.
#include <algorithm>

#include "compression/budget/budget.h"
#include "compression/merge/merge.h"
#include "compression/methods/methods.h"
#include "compression/score/score.h"
#include "compression/select/select.h"

namespace winnow::compression::methods {
namespace {

struct CamConfig {
  int sinks = 4;                                       // [authors' streaming code]
  merge::SpreadConfig spread;                          // [same]
  PositionMode positions = PositionMode::kReassigned;  // [same]
};

template <class Visitor>
void Visit(CamConfig& c, Visitor& v) {
  v("sinks", c.sinks, "first tokens that always stay", Range{0, 1 << 20});
  Visit(c.spread, v);
  VisitPositions(c.positions, v);
}

Result<MethodPtr> Make(const CamConfig& c) {
  return Compose(
      {.storage = {.positions = c.positions},
       .score = score::Age(),
       .budget = budget::Uniform(),
       .select = select::TopK(),
       .merge = merge::Spread(c.spread),
       // Sinks beyond the budget are cut to it (docs/methods/semantics.md#small-budgets).
       .protect = [](const Protect& p, const LayerCall& call) -> Protect {
         return {.sinks = std::min(p.sinks, call.budget), .recent = 0};
       },
       .protected_entries = {.sinks = c.sinks, .recent = 0},
       .when = When::kStep});
}

Promise Promises(const CamConfig& c, int64_t budget) {
  const int64_t sinks = std::min<int64_t>(c.sinks, budget);
  return {.exact = true, .sinks = sinks, .recent = budget - sinks, .merging = Merging::kAny};
}

}  // namespace

MethodEntry Cam() {
  return Entry<CamConfig, Make, Promises>(
      "cam", "streaming; evicted values are spread over the tokens that follow", "CaM, ICML 2024",
      {"positions=original"});
}

}  // namespace winnow::compression::methods
