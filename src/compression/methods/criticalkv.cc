// CriticalKV (arXiv:2502.03805), over any score: half of the budget goes to the best scores, the
// rest to the best of (score + epsilon) times |W_O v|_1, the norm of what the value adds to the
// residual stream, averaged over the query heads of the group. Scores that are sums over rows count
// as means.
// Based on the authors' code in kvpress. As there, entries protected by the window count towards
// the first half.
#include <algorithm>
#include <numeric>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "compression/methods/methods.h"
#include "compression/methods/parts_by_name.h"
#include "compression/numbers.h"
#include "compression/parts.h"
#include "compression/score/projected_values.h"
#include "compression/select/select.h"

namespace winnow::compression::methods {
namespace {

struct CriticalKvConfig {
  std::string score = "window";
  std::string budget = "uniform";
  double first = 0.5;     // [code]
  double epsilon = 1e-4;  // [code]
  int sinks = 0;
  int recent = -1;
};

template <class Visitor>
void Visit(CriticalKvConfig& c, Visitor& v) {
  v("score", c.score, "how important an entry is, as in custom", ScoreNames());
  v("budget", c.budget, "how many entries each layer and head keeps, as in custom", BudgetNames());
  v("first", c.first, "share of the budget that goes to the best scores alone", Range{0, 1});
  v("epsilon", c.epsilon, "added to scores before they are multiplied", Range{0, 1});
  v("sinks", c.sinks, "first tokens that always stay", Range{0, 1 << 20});
  v("recent", c.recent,
    "newest tokens that always stay; -1: those whose attention the score reads, if there are "
    "several",
    Range{-1, 1 << 20});
}

class TwoStages final : public Selector {
 public:
  TwoStages(score::ScorerPtr scorer, double first, double epsilon)
      : scorer_(std::move(scorer)), first_(first), epsilon_(epsilon) {}

  std::string_view name() const override { return "two_stages"; }
  void Evict(const SelectInput& in, std::vector<int32_t>& evicted) const override {
    const int64_t n_protected = in.call.n_slots(in.kv_head) - in.region.size();
    const int64_t n_all = in.n_keep + n_protected;
    const int64_t n_first = std::clamp<int64_t>(
        CountFrom(first_ * static_cast<double>(n_all)) - n_protected, 0, in.n_keep);
    std::vector<int32_t> ranks(in.scores.size());
    std::iota(ranks.begin(), ranks.end(), 0);
    std::sort(ranks.begin(), ranks.end(), BestFirst{in.scores});

    std::vector<double> second =
        score::MeanProjectedNorms(in.call, in.kv_head, in.region, score::Norm::kL1);
    const int n_rows = std::max(1, scorer_->n_rows_summed(in.call));
    for (size_t i = 0; i < second.size(); ++i) second[i] *= in.scores[i] / n_rows + epsilon_;
    std::sort(ranks.begin() + n_first, ranks.end(), BestFirst{second});

    evicted.assign(ranks.begin() + in.n_keep, ranks.end());
    std::sort(evicted.begin(), evicted.end());
    for (int32_t& rank : evicted) rank += static_cast<int32_t>(in.region.begin);
  }

 private:
  score::ScorerPtr scorer_;
  double first_;
  double epsilon_;
};

Result<MethodPtr> Make(const CriticalKvConfig& c) {
  WINNOW_ASSIGN(const score::ScorerPtr score, ScoreByName("criticalkv", c.score));
  WINNOW_ASSIGN(const budget::BudgeterPtr budget, BudgetByName("criticalkv", c.budget));
  if (!budget->needs_budget()) {
    return Error{"criticalkv: budget '" + c.budget +
                 "' finds its own size; expected one that divides a given budget"};
  }
  const int n_voters = score->needs().prefill.last_rows;
  const bool window = c.recent < 0 && n_voters > 1;
  const Regions regions = {.sinks = c.sinks, .recent = window ? n_voters : std::max(c.recent, 0)};
  return Compose({.min_budget = window && c.sinks == 0 ? 1 : regions.MinBudget(),
                  .score = score,
                  .budget = budget,
                  .select = std::make_shared<TwoStages>(score, c.first, c.epsilon),
                  .merge = nullptr,
                  .protect = window ? WindowWithin : decltype(&WindowWithin)(nullptr),
                  .protected_entries = regions,
                  .when = When::kPrefill});
}

Promise Promises(const CriticalKvConfig& c, int64_t budget) {
  if (c.score != "window" || c.budget != "uniform") return {};
  return {.exact = true, .recent = WindowUnder(budget, score::WindowConfig{}.window)};
}

}  // namespace

MethodEntry CriticalKv() {
  return Entry<CriticalKvConfig, Make, Promises>(
      "criticalkv", "half by any score, half by score times the norm of the projected value",
      "CriticalKV, arXiv:2502.03805", {"score=key_difference,budget=competing(0.2)"});
}

}  // namespace winnow::compression::methods
