#pragma once

#include <algorithm>
#include <utility>

#include "compression/budget/budget.h"
#include "compression/parts.h"
#include "compression/registry.h"
#include "compression/score/score.h"
#include "compression/select/select.h"

// Methods that consist of a score: a KV head keeps its best entries besides the first and newest
// tokens.
namespace winnow::compression::methods {

struct ScoreAloneConfig {
  int sinks = 0;
  CountOrShare recent = 0;
  bool decode = true;  // evict in decode too
};

template <class Visitor>
void Visit(ScoreAloneConfig& c, Visitor& v) {
  v("sinks", c.sinks, "first tokens that always stay", Range{0, 1 << 20});
  v("recent", c.recent, kRecentHelp);
  v("decode", c.decode, "evict while generating too");
}

inline MethodPtr ScoreAlone(const ScoreAloneConfig& c, score::ScorerPtr score) {
  const Regions regions = {.sinks = c.sinks, .recent = c.recent};
  return Compose({.min_budget = regions.MinBudget(),
                  .score = std::move(score),
                  .budget = budget::Uniform(),
                  .select = select::TopK(),
                  .merge = nullptr,
                  .protected_entries = regions,
                  .when = c.decode ? When::kStep : When::kPrefill});
}

inline Promise Promises(const ScoreAloneConfig& c, int64_t budget) {
  const Protect always = Regions{c.sinks, c.recent}.Under(budget);
  return {.exact = true, .sinks = always.sinks, .recent = always.recent};
}

}  // namespace winnow::compression::methods
