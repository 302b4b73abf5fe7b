// PyramidKV (arXiv:2406.02069): SnapKV with larger budgets in the first layers and smaller ones in
// the last.
// Differs from the authors' code: one vote per KV head, the mean over its query heads (heads=query:
// per query head, as theirs).
#include "compression/budget/budget.h"
#include "compression/methods/methods.h"
#include "compression/score/score.h"
#include "compression/select/select.h"

namespace winnow::compression::methods {
namespace {

struct PyramidKvConfig {
  score::WindowConfig score = {.window = 8, .pool = score::Pool::kMax, .kernel = 7};  // [code]
  budget::PyramidConfig budget;
  Heads heads = Heads::kKv;
};

template <class Visitor>
void Visit(PyramidKvConfig& c, Visitor& v) {
  Visit(c.score, v);
  Visit(c.budget, v);
  v("heads", c.heads, kHeadsHelp, Choices{"kv", "query"});
}

Result<MethodPtr> Make(const PyramidKvConfig& c) {
  WINNOW_TRY(score::CheckPoolWidth("pyramidkv", c.score.kernel));
  return Compose({.storage = {.per_query_head = c.heads == Heads::kQuery},
                  .score = score::Window(c.score),
                  .budget = budget::Pyramid(c.budget),
                  .select = select::TopK(),
                  .merge = nullptr,
                  .protect = WindowWithin,
                  .protected_entries = {.sinks = 0, .recent = c.score.window},
                  .when = When::kPrefill});
}

Promise Promises(const PyramidKvConfig& c, int64_t budget) {
  return {.exact = false, .recent = WindowUnder(budget, c.score.window)};
}

}  // namespace

MethodEntry PyramidKv() {
  return Entry<PyramidKvConfig, Make, Promises>("pyramidkv", "snapkv with more in the first layers",
                                                "PyramidKV, arXiv:2406.02069", {"heads=query"});
}

}  // namespace winnow::compression::methods
