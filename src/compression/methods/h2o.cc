// H2O (arXiv:2306.14048): keeps heavy hitters, the entries with the most accumulated attention, and
// the newest tokens.
// Differs from the authors' code: one set per KV head, by the mean over its query heads
// (heads=query: as theirs); the sums of evicted entries are dropped with them.
#include "compression/budget/budget.h"
#include "compression/methods/methods.h"
#include "compression/score/score.h"
#include "compression/select/select.h"

namespace winnow::compression::methods {
namespace {

struct H2oConfig {
  int sinks = 0;                                   // [TreeKV's experiments: 4]
  CountOrShare recent = CountOrShare::Share(0.5);  // [code]
  bool decode = true;  // evict while generating; false: for comparisons  [ours]
  score::Reduce reduce = score::Reduce::kMean;
  PositionMode positions = PositionMode::kOriginal;
  Heads heads = Heads::kKv;
};

template <class Visitor>
void Visit(H2oConfig& c, Visitor& v) {
  v("sinks", c.sinks, "first tokens that always stay", Range{0, 1 << 20});
  v("recent", c.recent, kRecentHelp);
  v("decode", c.decode, "evict while generating too");
  v("reduce", c.reduce, "over the query heads of a group", Choices{"mean", "max", "sum"});
  VisitPositions(c.positions, v);
  v("heads", c.heads, kHeadsHelp, Choices{"kv", "query"});
}

Result<MethodPtr> Make(const H2oConfig& c) {
  const Regions regions = {.sinks = c.sinks, .recent = c.recent};
  return Compose({.storage = {.positions = c.positions, .per_query_head = c.heads == Heads::kQuery},
                  .min_budget = regions.MinBudget(),
                  .score = score::Heavy(c.reduce),
                  .budget = budget::Uniform(),
                  .select = select::TopK(),
                  .merge = nullptr,
                  .protected_entries = regions,
                  .when = c.decode ? When::kStep : When::kPrefill});
}

Promise Promises(const H2oConfig& c, int64_t budget) {
  const Protect always = Regions{c.sinks, c.recent}.Under(budget);
  return {.exact = true, .sinks = always.sinks, .recent = always.recent};
}

}  // namespace

MethodEntry H2o() {
  return Entry<H2oConfig, Make, Promises>(
      "h2o", "heavy hitters by accumulated attention, and the newest", "H2O, arXiv:2306.14048",
      {"sinks=4,positions=reassigned", "heads=query"});
}

}  // namespace winnow::compression::methods
