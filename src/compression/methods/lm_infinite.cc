// LM-Infinite (arXiv:2308.16137): the first tokens and a window of the newest, no key farther from
// the query than the model has learned. StreamingLLM's regions under another rule of positions.
// Differs from the authors' code: what lies between the two regions is evicted, not masked.
#include <algorithm>

#include "compression/budget/budget.h"
#include "compression/methods/methods.h"
#include "compression/score/score.h"
#include "compression/select/select.h"

namespace winnow::compression::methods {
namespace {

struct LmInfiniteConfig {
  int sinks = 10;        // n_global, first tokens  [paper: 10, or 100]
  int64_t distance = 0;  // L_pretrain, tokens; 0: the model's trained context  [paper]
};

template <class Visitor>
void Visit(LmInfiniteConfig& c, Visitor& v) {
  v("sinks", c.sinks, "first tokens that always stay", Range{0, 1 << 20});
  v("distance", c.distance,
    "farthest distance between a query and a key, tokens; 0: the model's trained context",
    Range{0, 1 << 30});
}

Result<MethodPtr> Make(const LmInfiniteConfig& c) {
  return Compose(
      {.traits = {.positions = PositionMode::kCapped,
                  .distance_cap = c.distance,
                  .evicts_in_decode = true},
       .score = score::Age(),
       .budget = budget::Uniform(),
       .select = select::TopK(),
       .merge = nullptr,
       // More sinks than there is room for: all the room (docs/methods/semantics.md#small-budgets).
       .protect = [](const Protect& p, const LayerCall& call) -> Protect {
         return {.sinks = std::min(p.sinks, call.budget), .recent = 0};
       },
       .protected_entries = {.sinks = c.sinks, .recent = 0},
       .when = When::kStep});
}

Promise Promises(const LmInfiniteConfig& c, int64_t budget) {
  const int64_t sinks = std::min<int64_t>(c.sinks, budget);
  return {.exact = true, .sinks = sinks, .recent = budget - sinks};
}

}  // namespace

MethodEntry LmInfinite() {
  return Entry<LmInfiniteConfig, Make, Promises>(
      "lm-infinite", "the first tokens and the newest ones, distances capped",
      "LM-Infinite, arXiv:2308.16137");
}

}  // namespace winnow::compression::methods
