// Local window: keeps only the newest tokens.
#include "compression/budget/budget.h"
#include "compression/methods/methods.h"
#include "compression/score/score.h"
#include "compression/select/select.h"

namespace winnow::compression::methods {
namespace {

struct LocalConfig {};

template <class Visitor>
void Visit(LocalConfig&, Visitor&) {}

Result<MethodPtr> Make(const LocalConfig&) {
  return Compose({.storage = {.positions = PositionMode::kReassigned},
                  .score = score::Age(),
                  .budget = budget::Uniform(),
                  .select = select::TopK(),
                  .merge = nullptr,
                  .protected_entries = {},
                  .when = When::kStep});
}

Promise Promises(const LocalConfig&, int64_t budget) { return {.exact = true, .recent = budget}; }

}  // namespace

MethodEntry Local() {
  return Entry<LocalConfig, Make, Promises>("local", "the newest tokens only", "sliding window");
}

}  // namespace winnow::compression::methods
