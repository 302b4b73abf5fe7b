// CAOTE (arXiv:2504.14051): evicts the entries whose loss changes attention's output least. With
// another method's scores, normalized to weights a that sum to one, the output is o = sum of a_j
// v_j; without entry j it would differ by
//  a_j / (1 - a_j) * |v_j - o|
// form=errors instead sums the squares of this over all queries of the window and query heads, each
// with its own weights (proposed to kvpress as DropKV).
// Written without the authors' code. Differs from the paper: scores are per KV head, the mean over
// its query heads; they are smoothed only if `pool` is given.
#include <algorithm>

#include <cmath>
#include <limits>
#include <span>
#include <vector>

#include "compression/budget/budget.h"
#include "compression/methods/methods.h"
#include "compression/numbers.h"
#include "compression/parts.h"
#include "compression/score/score.h"
#include "compression/score/stored_keys.h"
#include "compression/select/select.h"

namespace winnow::compression::methods {
namespace {

struct CaoteConfig {
  enum class Base { kWindow, kLast, kHeavy };
  enum class Form { kScores, kErrors };
  Base base = Base::kWindow;
  Form form = Form::kScores;
  bool fast = false;
  int window = 32;                        // [SnapKV's]
  score::Pool pool = score::Pool::kNone;  // ours: smoothing would blur single entries
  int kernel = 7;                         // [SnapKV's]
  int sinks = 0;
  CountOrShare recent = 0;
};

template <class Visitor>
void Visit(CaoteConfig& c, Visitor& v) {
  v("base", c.base,
    "base scores: from the last prompt tokens (snapkv), the newest token (tova) or all tokens "
    "(h2o); the last two evict while generating too",
    Choices{"window", "last", "heavy"});
  v("form", c.form,
    "rank by the base scores, or by the error of each query of the window in each query head "
    "(base=window)",
    Choices{"scores", "errors"});
  v("fast", c.fast, "the mean of the values instead of attention's output (FastCAOTE)");
  v("window", c.window, "base=window: last prompt tokens that vote, and stay", Range{1, 1 << 16});
  v("pool", c.pool, "base=window: smoothing of the votes over neighbours",
    Choices{"none", "average", "max"});
  v("kernel", c.kernel, "smoothing width, odd", Range{1, score::kMaxKernel});
  v("sinks", c.sinks, "first tokens that always stay", Range{0, 1 << 20});
  v("recent", c.recent, kRecentHelp);
}

// Change of the output when an entry of this weight is evicted, in units of |value - output|.
// Infinite for an entry with all the weight: nothing would be left to attend to.
double Factor(double weight) {
  return weight < 1 ? weight / (1 - weight) : std::numeric_limits<double>::infinity();
}

double SquareDistance(std::span<const float> value, std::span<const double> output) {
  double sum = 0;
  for (size_t d = 0; d < output.size(); ++d) {
    const double difference = double{value[d]} - output[d];
    sum += difference * difference;
  }
  return sum;
}

// Weighted sum of the values of a KV head. weights: [entry], of all entries; out: [dim].
void MeanValue(const LayerCall& call, int kv_head, std::span<const double> weights,
               std::vector<double>& out) {
  const kernels::HeadRows values = call.cache.values(call.layer, kv_head);
  out.assign(static_cast<size_t>(values.dim), 0.0);
  score::ForEachRow(call, kv_head, values, 0, call.n_slots(kv_head),
                    [&](int64_t rank, std::span<const float> value) {
                      const double weight = weights[static_cast<size_t>(rank)];
                      if (weight == 0) return;
                      for (size_t d = 0; d < out.size(); ++d) out[d] += weight * value[d];
                    });
}

// Scores by the weights of another scorer, whose scores must not be negative.
class OutputErrorScorer final : public Scorer {
 public:
  OutputErrorScorer(score::ScorerPtr base, bool fast) : base_(std::move(base)), fast_(fast) {}

  std::string_view name() const override { return "output_error"; }
  Needs needs() const override { return base_->needs(); }
  void Observe(const LayerCall& call) const override { base_->Observe(call); }
  void Score(const LayerCall& call, int kv_head, Region region,
             std::span<double> out) const override {
    const int64_t n = call.n_slots(kv_head);
    std::vector<double> weights(static_cast<size_t>(n));
    base_->Score(call, kv_head, {0, n}, weights);
    double sum = 0;
    for (const double weight : weights) sum += weight;
    for (double& weight : weights) weight = Fraction(weight, sum, 1.0 / static_cast<double>(n));
    std::vector<double> output;
    if (fast_) {
      const std::vector<double> equal(weights.size(), 1.0 / static_cast<double>(n));
      MeanValue(call, kv_head, equal, output);
    } else {
      MeanValue(call, kv_head, weights, output);
    }
    score::ForEachRow(call, kv_head, call.cache.values(call.layer, kv_head), region.begin,
                      region.end, [&](int64_t rank, std::span<const float> value) {
                        const double factor = Factor(weights[static_cast<size_t>(rank)]);
                        out[static_cast<size_t>(rank - region.begin)] =
                            std::isinf(factor) ? factor
                                               : factor * std::sqrt(SquareDistance(value, output));
                      });
  }

 private:
  score::ScorerPtr base_;
  bool fast_;
};

// Sums squared errors over every query of the window and every query head of the group.
class QueryErrorScorer final : public Scorer {
 public:
  QueryErrorScorer(int window, bool fast) : window_(window), fast_(fast) {}

  std::string_view name() const override { return "query_error"; }
  Needs needs() const override {
    return {.prefill = {.last_rows = window_, .reduce = kernels::TapSpec::Reduce::kNone}};
  }
  void Score(const LayerCall& call, int kv_head, Region region,
             std::span<double> out) const override {
    std::fill(out.begin(), out.end(), 0.0);
    const int n_rows = static_cast<int>(
        std::min<int64_t>(call.taps->n_last_rows, WindowUnder(call.budget, window_)));
    for (int head = kv_head * call.group(); head < (kv_head + 1) * call.group(); ++head) {
      for (int row = call.taps->n_last_rows - n_rows; row < call.taps->n_last_rows; ++row) {
        AddErrors(call, kv_head, region, call.last_row(head, row), out);
      }
    }
  }

 private:
  void AddErrors(const LayerCall& call, int kv_head, Region region, std::span<const float> row,
                 std::span<double> out) const {
    const std::span<const Slot> order = call.order(kv_head);
    std::vector<double> weights, output;
    for (const Slot slot : order) weights.push_back(row[static_cast<size_t>(slot)]);
    if (fast_) {
      const std::vector<double> equal(weights.size(), 1.0 / static_cast<double>(weights.size()));
      MeanValue(call, kv_head, equal, output);
    } else {
      MeanValue(call, kv_head, weights, output);
    }
    score::ForEachRow(call, kv_head, call.cache.values(call.layer, kv_head), region.begin,
                      region.end, [&](int64_t rank, std::span<const float> value) {
                        const double factor = Factor(weights[static_cast<size_t>(rank)]);
                        out[static_cast<size_t>(rank - region.begin)] +=
                            std::isinf(factor) ? factor
                                               : factor * factor * SquareDistance(value, output);
                      });
  }

  int window_;
  bool fast_;
};

score::ScorerPtr MakeScorer(const CaoteConfig& c) {
  if (c.form == CaoteConfig::Form::kErrors) {
    return std::make_shared<QueryErrorScorer>(c.window, c.fast);
  }
  switch (c.base) {
    case CaoteConfig::Base::kLast:
      return std::make_shared<OutputErrorScorer>(
          score::LastRow({.queries = 1, .per_layer = false, .reduce = score::Reduce::kMean}),
          c.fast);
    case CaoteConfig::Base::kHeavy:
      return std::make_shared<OutputErrorScorer>(score::Heavy(), c.fast);
    case CaoteConfig::Base::kWindow:
      break;
  }
  return std::make_shared<OutputErrorScorer>(
      score::Window({.window = c.window, .pool = c.pool, .kernel = c.kernel}), c.fast);
}

Result<MethodPtr> Make(const CaoteConfig& c) {
  WINNOW_TRY(score::CheckPoolWidth("caote", c.kernel));
  const bool window = c.base == CaoteConfig::Base::kWindow;
  if (!window && c.form == CaoteConfig::Form::kErrors) {
    return Error{
        "caote: form=errors: found base=last or base=heavy, expected base=window, whose queries "
        "are available individually"};
  }
  if (window && (c.recent.is_share() || c.recent.count() > 0)) {
    return Error{
        "caote: recent: found a value, expected none with base=window: the window's tokens stay"};
  }
  Regions regions = {.sinks = c.sinks, .recent = c.recent};
  if (window) regions.recent = c.window;
  return Compose({// A window without sinks shrinks with the budget, so that every budget is enough.
                  .min_budget = window && c.sinks == 0 ? 1 : regions.MinBudget(),
                  .score = MakeScorer(c),
                  .budget = budget::Uniform(),
                  .select = select::TopK(),
                  .merge = nullptr,
                  .protect = window ? WindowWithin : nullptr,
                  .protected_entries = regions,
                  .when = window ? When::kPrefill : When::kStep});
}

Promise Promises(const CaoteConfig& c, int64_t budget) {
  return {.exact = true,
          .recent = c.base == CaoteConfig::Base::kWindow ? WindowUnder(budget, c.window) : 0};
}

}  // namespace

MethodEntry Caote() {
  return Entry<CaoteConfig, Make, Promises>(
      "caote",
      "entries whose eviction would change attention's output most, from base scores and values",
      "CAOTE, arXiv:2504.14051", {"base=last", "form=errors"});
}

}  // namespace winnow::compression::methods
