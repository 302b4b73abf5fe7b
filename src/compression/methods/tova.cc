// TOVA (arXiv:2401.06104): evicts the entry that the newest query attends to least, the same one in
// all heads of a layer. The newest entry is a candidate like any other.
#include "compression/budget/budget.h"
#include "compression/methods/methods.h"
#include "compression/score/score.h"
#include "compression/select/select.h"

namespace winnow::compression::methods {
namespace {

struct TovaConfig {
  int sinks = 0;            // [TreeKV's experiments: 4]
  CountOrShare recent = 0;  // [same: 0.5, 508 of 1024]
  score::LastRowConfig score;
  PositionMode positions = PositionMode::kOriginal;  // [authors' code]
};

template <class Visitor>
void Visit(TovaConfig& c, Visitor& v) {
  v("sinks", c.sinks, "first tokens that always stay", Range{0, 1 << 20});
  v("recent", c.recent, kRecentHelp);
  Visit(c.score, v);
  VisitPositions(c.positions, v);
}

Result<MethodPtr> Make(const TovaConfig& c) {
  const Regions regions = {.sinks = c.sinks, .recent = c.recent};
  return Compose({.storage = {.positions = c.positions},
                  .min_budget = regions.MinBudget(),
                  .score = score::LastRow(c.score),
                  .budget = budget::Uniform(),
                  .select = select::TopK(),
                  .merge = nullptr,
                  .protected_entries = regions,
                  .when = When::kStep});
}

Promise Promises(const TovaConfig& c, int64_t budget) {
  const Protect always = Regions{c.sinks, c.recent}.Under(budget);
  return {.exact = true, .sinks = always.sinks, .recent = always.recent};
}

}  // namespace

MethodEntry Tova() {
  return Entry<TovaConfig, Make, Promises>("tova", "entries that the newest query attends to",
                                           "TOVA, arXiv:2401.06104", {"positions=reassigned"});
}

}  // namespace winnow::compression::methods
