// SnapKV (arXiv:2404.14469): the last `window` prompt queries vote for the entries to keep.
// Differs from the authors' code: one vote per KV head, the mean over its query heads (heads=query:
// per query head, as theirs).
#include "compression/budget/budget.h"
#include "compression/methods/methods.h"
#include "compression/score/score.h"
#include "compression/select/select.h"

namespace winnow::compression::methods {
namespace {

struct SnapKvConfig {
  score::WindowConfig score;
  Heads heads = Heads::kKv;
};

template <class Visitor>
void Visit(SnapKvConfig& c, Visitor& v) {
  Visit(c.score, v);
  v("heads", c.heads, kHeadsHelp, Choices{"kv", "query"});
}

Result<MethodPtr> Make(const SnapKvConfig& c) {
  WINNOW_TRY(score::CheckPoolWidth("snapkv", c.score.kernel));
  return Compose({.storage = {.per_query_head = c.heads == Heads::kQuery},
                  .score = score::Window(c.score),
                  .budget = budget::Uniform(),
                  .select = select::TopK(),
                  .merge = nullptr,
                  .protect = WindowWithin,
                  .protected_entries = {.sinks = 0, .recent = c.score.window},
                  .when = When::kPrefill});
}

Promise Promises(const SnapKvConfig& c, int64_t budget) {
  return {.exact = true, .recent = WindowUnder(budget, c.score.window)};
}

}  // namespace

MethodEntry SnapKv() {
  return Entry<SnapKvConfig, Make, Promises>(
      "snapkv", "entries that the last prompt tokens attend to, smoothed",
      "SnapKV, arXiv:2404.14469", {"heads=query"});
}

}  // namespace winnow::compression::methods
