// ReFreeKV: keeps the first tokens and as few of the newest as preserve the norm of the last
// attention row (metric=matrix: of all rows) within a threshold. Needs no budget; a given budget is
// a limit.
// Differs from the paper, like the authors' code: one length for all heads of a layer
// (per_head=true: one per head); the first tokens count in neither norm (include_first=true: in
// both).
#include "compression/budget/budget.h"
#include "compression/methods/methods.h"
#include "compression/score/score.h"
#include "compression/select/select.h"

namespace winnow::compression::methods {
namespace {

struct ReFreeKvConfig {
  enum class Ranking { kRecency, kAttention };
  int sinks = 4;  // first tokens that stay (m)  [code]
  budget::NormConfig norm;
  Ranking ranking = Ranking::kRecency;  // [paper; attention: its ablation]
  Heads heads = Heads::kKv;
};

template <class Visitor>
void Visit(ReFreeKvConfig& c, Visitor& v) {
  v("sinks", c.sinks, "first tokens that always stay", Range{0, 1 << 20});
  Visit(c.norm, v);
  v("ranking", c.ranking, "entries kept first: the newest, or the most attended (ablation)",
    Choices{"recency", "attention"});
  v("heads", c.heads, kHeadsHelp, Choices{"kv", "query"});
}

Result<MethodPtr> Make(const ReFreeKvConfig& c) {
  return Compose({.storage = {.per_query_head = c.heads == Heads::kQuery},
                  .min_budget = c.sinks + 1,
                  .score = c.ranking == ReFreeKvConfig::Ranking::kRecency
                               ? score::Age()
                               : score::LastMean({.queries = c.norm.queries,
                                                  .queries_share = c.norm.queries_share,
                                                  .per_layer = !c.norm.per_head}),
                  .budget = budget::Norm(c.norm),
                  .select = select::TopK(),
                  .merge = nullptr,
                  .protected_entries = {.sinks = c.sinks, .recent = 0},
                  .when = When::kPrefill});
}

Promise Promises(const ReFreeKvConfig& c, int64_t) {
  return {.exact = false, .sinks = c.sinks, .recent = 1};
}

}  // namespace

MethodEntry ReFreeKv() {
  return Entry<ReFreeKvConfig, Make, Promises>(
      "refreekv", "the first tokens and as few of the newest as preserve the attention norm",
      "ReFreeKV", {"per_head=true", "per_head=true,heads=query"});
}

}  // namespace winnow::compression::methods
