// Scissorhands (arXiv:2305.17118): once the budget is exceeded, the half of it is evicted that most
// often received less than an equal share of attention in the last rows.
// Written without the authors' code: check the counter and the defaults before publishing results
// under this name. A prompt that exceeds the budget by more than one burst takes as many bursts as
// it needs.
#include "compression/budget/budget.h"
#include "compression/methods/methods.h"
#include "compression/score/score.h"
#include "compression/select/select.h"

namespace winnow::compression::methods {
namespace {

struct ScissorhandsConfig {
  score::HistoryConfig history;  // [paper: 400]
  int sinks = 0;                 // [TreeKV's experiments: 4]
  CountOrShare recent = 10;      // newest tokens that always stay  [paper]
  budget::BurstConfig burst;     // [paper: half of the budget]
};

template <class Visitor>
void Visit(ScissorhandsConfig& c, Visitor& v) {
  v("window", c.history.window, "recent queries that count", Range{1, 1 << 16});
  v("sinks", c.sinks, "first tokens that always stay", Range{0, 1 << 20});
  v("recent", c.recent, kRecentHelp);
  v("drop", c.burst.share, "share of the budget evicted at once when it is exceeded", Range{0, 1});
  v("reduce", c.history.reduce, "over the query heads of a group", Choices{"mean", "max", "sum"});
}

Result<MethodPtr> Make(const ScissorhandsConfig& c) {
  const Regions regions = {.sinks = c.sinks, .recent = c.recent};
  return Compose({.min_budget = regions.MinBudget(),
                  .score = score::History(c.history),
                  .budget = budget::Burst(c.burst),
                  .select = select::TopK(),
                  .merge = nullptr,
                  .protected_entries = regions,
                  .when = When::kStep});
}

Promise Promises(const ScissorhandsConfig& c, int64_t budget) {
  const Protect always = Regions{c.sinks, c.recent}.Under(budget);
  return {.exact = false, .sinks = always.sinks, .recent = always.recent};
}

}  // namespace

MethodEntry Scissorhands() {
  return Entry<ScissorhandsConfig, Make, Promises>(
      "scissorhands", "entries that usually receive at least an equal share of attention",
      "Scissorhands, arXiv:2305.17118");
}

}  // namespace winnow::compression::methods
