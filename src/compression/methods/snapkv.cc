// SnapKV (arXiv:2404.14469): the last `window` prompt queries vote for the entries to keep.
// Differs from the authors' code: one vote per KV head, the mean over its query heads.
#include "compression/budget/budget.h"
#include "compression/methods/methods.h"
#include "compression/score/score.h"
#include "compression/select/select.h"

namespace winnow::compression::methods {
namespace {

Result<MethodPtr> Make(const score::WindowConfig& c) {
  WINNOW_TRY(score::CheckPoolWidth("snapkv", c.kernel));
  return Compose({.traits = {},
                  .score = score::Window(c),
                  .budget = budget::Uniform(),
                  .select = select::TopK(),
                  .merge = nullptr,
                  .protect = WindowWithin,
                  .protected_entries = {.sinks = 0, .recent = c.window},
                  .when = When::kPrefill});
}

Promise Promises(const score::WindowConfig& c, int64_t budget) {
  return {.exact = true, .recent = WindowUnder(budget, c.window)};
}

}  // namespace

MethodEntry SnapKv() {
  return Entry<score::WindowConfig, Make, Promises>(
      "snapkv", "what the last prompt tokens attend to, smoothed", "SnapKV, arXiv:2404.14469");
}

}  // namespace winnow::compression::methods
