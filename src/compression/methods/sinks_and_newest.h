#pragma once

#include <algorithm>

#include "compression/budget/budget.h"
#include "compression/parts.h"
#include "compression/registry.h"
#include "compression/score/score.h"
#include "compression/select/select.h"

// Methods that keep the first and the newest tokens, and differ in the positions of keys.
namespace winnow::compression::methods {

inline MethodPtr SinksAndNewest(int sinks, const StoragePolicy& storage) {
  return Compose({.storage = storage,
                  .score = score::Age(),
                  .budget = budget::Uniform(),
                  .select = select::TopK(),
                  .merge = nullptr,
                  // Sinks beyond the budget are cut to it
                  // (docs/methods/semantics.md#small-budgets).
                  .protect = [](const Protect& p, const LayerCall& call) -> Protect {
                    return {.sinks = std::min(p.sinks, call.budget), .recent = 0};
                  },
                  .protected_entries = {.sinks = sinks, .recent = 0},
                  .when = When::kStep});
}

// For methods whose config has `sinks`.
template <class Config>
Promise PromisesSinksAndNewest(const Config& c, int64_t budget) {
  const int64_t sinks = std::min<int64_t>(c.sinks, budget);
  return {.exact = true, .sinks = sinks, .recent = budget - sinks};
}

}  // namespace winnow::compression::methods
