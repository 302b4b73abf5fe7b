// LM-Infinite (arXiv:2308.16137): keeps the first tokens and a window of the newest; no distance
// between query and key exceeds the trained context. StreamingLLM's regions with another rule of
// positions.
// Differs from the authors' code: entries between the two regions are evicted, not masked.
#include "compression/methods/methods.h"
#include "compression/methods/sinks_and_newest.h"

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
  return SinksAndNewest(c.sinks, {.positions = PositionMode::kCapped, .distance_cap = c.distance});
}

}  // namespace

MethodEntry LmInfinite() {
  return Entry<LmInfiniteConfig, Make, PromisesSinksAndNewest<LmInfiniteConfig>>(
      "lm-infinite", "the first tokens and the newest ones, distances capped",
      "LM-Infinite, arXiv:2308.16137");
}

}  // namespace winnow::compression::methods
