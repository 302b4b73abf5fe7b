// AdaKV (arXiv:2407.11550): SnapKV whose heads share the budget of their layer. Each head keeps its
// best entries up to a reserved share; the heads compete by score for the rest.
// The authors' code blends the heads' counts with the uniform budget instead (form=blend). Unlike
// that code, form=blend uses the budget exactly: its rounding can miss it.
#include "compression/budget/budget.h"
#include "compression/methods/methods.h"
#include "compression/score/score.h"
#include "compression/select/select.h"

namespace winnow::compression::methods {
namespace {

struct AdaKvConfig {
  score::WindowConfig score;  // window 32, max pooling over 7
  budget::CompetingConfig budget;
};

template <class Visitor>
void Visit(AdaKvConfig& c, Visitor& v) {
  Visit(c.score, v);
  Visit(c.budget, v);
}

Result<MethodPtr> Make(const AdaKvConfig& c) {
  WINNOW_TRY(score::CheckPoolWidth("adakv", c.score.kernel));
  return Compose({.score = score::Window(c.score),
                  .budget = budget::Competing(c.budget),
                  .select = select::TopK(),
                  .merge = nullptr,
                  .protect = WindowWithin,
                  .protected_entries = {.sinks = 0, .recent = c.score.window},
                  .when = When::kPrefill});
}

Promise Promises(const AdaKvConfig& c, int64_t budget) {
  return {.exact = false, .recent = WindowUnder(budget, c.score.window)};
}

}  // namespace

MethodEntry AdaKv() {
  return Entry<AdaKvConfig, Make, Promises>("adakv",
                                            "snapkv whose heads compete for the layer's budget",
                                            "AdaKV, arXiv:2407.11550", {"form=blend"});
}

}  // namespace winnow::compression::methods
