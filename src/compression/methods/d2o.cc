// D2O (arXiv:2406.13035): layers with dense attention get a larger cache; an evicted entry is
// merged into the most similar kept entry if it is similar enough.
// Implements Method rather than combining parts: the number of recent entries depends on the
// layer's own budget, and layer_policy=softmax compresses all layers after the last one. Scores,
// selection and merging are those of H2O and merge::Nearest.
// Differs from the authors' code: the prompt is compressed after prefill, not in the first decode
// step; decisions and thresholds are per KV head (the mean over its query heads; heads=query: per
// query head); merge weights are those of Eq. 11 without the sum in the numerator, so that they add
// up to one.
#include <algorithm>
#include <cmath>
#include <vector>

#include "compression/merge/merge.h"
#include "compression/methods/methods.h"
#include "compression/numbers.h"
#include "compression/score/score.h"
#include "compression/select/select.h"
#include "compression/taps.h"

namespace winnow::compression::methods {
namespace {

struct D2oConfig {
  enum class LayerPolicy { kUniform, kGate, kSoftmax };
  LayerPolicy layer_policy = LayerPolicy::kGate;  // [paper; softmax: authors' code]
  double gate = 100;  // g: variance of the column sums above which attention is sparse  [paper]
  enum class GateScale { kNone, kLength };
  GateScale gate_scale = GateScale::kNone;  // [paper; length: docs/methods/semantics.md#d2o]
  double alpha = 2;    // cache of dense layers, as a multiple of the budget  [paper: 2 to 4]
  bool total = false;  // true: all layers together hold n_layers * budget  [same]
  int sinks = 4;       // T  [paper]
  // N : M, important to recent  [paper]. Where important is 0 or recent is a share, `recent` alone
  // sets the number of newest entries, as in other methods  [TreeKV's experiments: a share of 0.5].
  int important = 3;
  CountOrShare recent = 1;
  merge::NearestConfig merge;
  score::Reduce reduce = score::Reduce::kMean;
  // kReassigned: keys are compared and merged before RoPE, as in EMS. A merged key takes the rank
  // of the entry that it was merged into, and texts may exceed the trained context.
  PositionMode positions = PositionMode::kOriginal;  // [code]
  Heads heads = Heads::kKv;
};

template <class Visitor>
void Visit(D2oConfig& c, Visitor& v) {
  v("layer_policy", c.layer_policy,
    "how the budget is divided over layers: equally, by a gate, by a softmax",
    Choices{"uniform", "gate", "softmax"});
  v("gate", c.gate, "variance of the column sums above which a layer's attention is sparse",
    Range{0, 1e12});
  v("gate_scale", c.gate_scale,
    "length: scale the variance to a prompt of 1000 tokens, because it grows with length",
    Choices{"none", "length"});
  v("alpha", c.alpha, "entries of layers with dense attention, as a multiple of the budget",
    Range{1, 1000});
  v("total", c.total,
    "dense layers take their extra entries from the others, so that the total budget holds");
  v("sinks", c.sinks, "first tokens that always stay", Range{0, 1 << 20});
  v("important", c.important,
    "important : recent is the ratio of the two regions; 0: recent is a count", Range{0, 1 << 20});
  v("recent", c.recent,
    "part of that ratio; or newest tokens that are never evicted: a count, or a share of the "
    "budget that includes the sinks");
  Visit(c.merge, v);
  v("reduce", c.reduce, "over the query heads of a group", Choices{"mean", "max", "sum"});
  VisitPositions(
      c.positions, v,
      "positions of the keys: place in the text, or rank in the cache (merged before RoPE)");
  v("heads", c.heads, kHeadsHelp, Choices{"kv", "query"});
}

bool InRatio(const D2oConfig& c) { return c.important > 0 && !c.recent.is_share(); }

// M, the number of newest entries that stay, under a layer's budget.
int64_t RecentUnder(const D2oConfig& c, int64_t budget) {
  if (!InRatio(c)) return Regions{c.sinks, c.recent}.Under(budget).recent;
  const int64_t part = c.recent.count();
  return std::max<int64_t>(1, (budget - c.sinks) * part / (c.important + part));
}

// Indices of layer numbers.
constexpr int kDensity = 0;   // F of the gate, u of the softmax policy
constexpr int kMeasured = 1;  // tokens of the call in which it was measured; 0: never
constexpr int kPrompt = 2;    // tokens of the sequence after the last prefill call

class D2oMethod final : public Method {
 public:
  explicit D2oMethod(const D2oConfig& c)
      : c_(c),
        traits_({.storage = {.positions = c.positions, .per_query_head = c.heads == Heads::kQuery},
                 .decisions = {.prefill = c.layer_policy == LayerPolicy::kSoftmax || c.total
                                              ? DecisionPolicy::Prefill::kLastLayer
                                              : DecisionPolicy::Prefill::kEachLayer,
                               .evicts_in_decode = true,
                               .shares_threads = true},
                 .budget = {.held = c.layer_policy == LayerPolicy::kUniform || c.total,
                            .min = MinBudget(c)}}),
        score_(score::Heavy(c.reduce)),
        select_(select::TopK()),
        merge_(merge::Nearest(c.merge)) {}

  const Traits& traits() const override { return traits_; }
  Needs needs() const override {
    Needs needs = score_->needs();
    // A layer's density is measured on single query heads.
    if (c_.layer_policy != LayerPolicy::kUniform) {
      needs.prefill.reduce = kernels::TapSpec::Reduce::kNone;
    }
    needs.state.n_head_numbers = merge_->needs().state.n_head_numbers;
    needs.state.n_layer_numbers = 3;
    return needs;
  }
  int64_t MaxSlots(int64_t budget, int64_t n) const override {
    if (c_.layer_policy == LayerPolicy::kSoftmax) return n;
    return std::min(n, MaxEntries(budget));
  }
  int64_t TotalSlots(int64_t budget, int64_t n, int n_layers) const override {
    if (c_.total) return std::min(budget, n) * n_layers;
    if (c_.layer_policy != LayerPolicy::kSoftmax) return MaxSlots(budget, n) * n_layers;
    // Exempt layers keep everything. The ratios of all layers sum to n_layers * budget / n, apart
    // from the minimum that each layer gets.
    int64_t total = 0;
    int n_others = 0;
    for (int layer = 0; layer < n_layers; ++layer) {
      if (Exempt(layer, n_layers)) {
        total += n;
      } else {
        ++n_others;
      }
    }
    const int64_t min = std::max<int64_t>(traits_.budget.min, n / 100 + 1);
    return total + std::min(n_others * n, n_layers * budget + n_others * min);
  }

  void Decide(const LayerCall& call, PlanList& plans) const override {
    if (call.phase == Phase::kDecode) {
      const int64_t n_over = NumberOver(call);
      if (n_over > 0) return CompressLayer(call, n_over, plans);
      if (call.pass == 0) Observe(call);
      return;
    }
    if (call.pass == 0) Observe(call);
    if (!traits_.decisions.WaitsForAllLayers()) return CompressLayer(call, NumberOver(call), plans);
    if (call.layer != call.n_layers - 1) return;
    for (int layer = 0; layer < call.n_layers; ++layer) {
      LayerCall own = call;
      own.layer = layer;
      CompressLayer(own, NumberOver(own), plans);
    }
  }

 private:
  using LayerPolicy = D2oConfig::LayerPolicy;

  // With total=true dense layers take room from sparse ones, which must still get the minimum.
  static int64_t MinBudget(const D2oConfig& c) {
    const int64_t counted = InRatio(c) ? 0 : Regions{c.sinks, c.recent}.MinBudget();
    const int64_t min = std::max<int64_t>(c.sinks + 2, counted);
    return c.total ? CountFrom(std::ceil(c.alpha * static_cast<double>(min))) : min;
  }

  int64_t MaxEntries(int64_t budget) const {
    if (c_.layer_policy != LayerPolicy::kGate) return budget;
    return CountFrom(c_.alpha * static_cast<double>(budget));
  }
  // Layers that the authors' code never compresses.
  static bool Exempt(int layer, int n_layers) { return layer < 2 || layer == n_layers - 1; }

  void Observe(const LayerCall& call) const {
    if (call.phase == Phase::kDecode || c_.layer_policy == LayerPolicy::kUniform) {
      score_->Observe(call);
      return;
    }
    const kernels::TapSpec wanted = score_->needs().prefill;
    kernels::Taps& reduced = call.scratch.reduced[static_cast<size_t>(wanted.reduce)];
    score_->Observe(
        call.WithTaps(ReduceTapsTo(wanted, needs().prefill, *call.taps, call.group(), reduced)));
    call.layer_number(kPrompt) = static_cast<double>(call.n_seen);
    // One token says nothing about a layer's density, and a chunk says less than a longer one
    // before it.
    if (call.n_new == 1) return;
    double& measured = call.layer_number(kMeasured);
    if (static_cast<double>(call.n_new) < measured) return;
    measured = static_cast<double>(call.n_new);
    call.layer_number(kDensity) = Density(call);
  }

  // How unevenly the columns receive attention (docs/methods/semantics.md#d2o): F(l), the mean
  // variance over the query heads (scaled by gate_scale), or u(l), the mean of the variances after
  // min-max normalization. 0 where a sum is NaN.
  double Density(const LayerCall& call) const {
    std::vector<double>& variances = call.scratch.numbers;
    variances.clear();
    for (const std::vector<double>& sums : call.taps->column_sums) {
      const auto n = static_cast<double>(sums.size());
      double mean = 0;
      for (const double sum : sums) mean += sum / n;
      double squares = 0;
      for (const double sum : sums) squares += (sum - mean) * (sum - mean);
      variances.push_back(sums.size() > 1 ? squares / (n - 1) : 0);
    }
    const auto [min, max] = std::ranges::minmax(variances);
    double mean = 0;
    for (const double variance : variances) {
      mean +=
          c_.layer_policy == LayerPolicy::kGate ? variance : (variance - min) / (max - min + 1e-6);
    }
    mean /= static_cast<double>(variances.size());
    if (c_.gate_scale == D2oConfig::GateScale::kLength) {
      mean *= 1000 / static_cast<double>(call.taps->column_sums[0].size());
    }
    return std::isnan(mean) ? 0 : mean;
  }

  // B(l). A dense layer gets at least the whole budget, even if the prompt is shorter.
  int64_t LayerBudget(const LayerCall& call) const {
    if (call.layer_number(kMeasured) == 0) return call.budget;
    const int64_t n_prompt = CountFrom(call.layer_number(kPrompt));
    if (c_.layer_policy == LayerPolicy::kGate && c_.total) return LayerShareOfTotal(call, n_prompt);
    if (c_.layer_policy == LayerPolicy::kGate) {
      if (call.layer_number(kDensity) > c_.gate) return call.budget;
      return std::max(call.budget, std::min(n_prompt, MaxEntries(call.budget)));
    }
    // A prompt within the budget is not compressed, however small the layer's ratio.
    if (n_prompt <= call.budget) return call.budget;
    double total = 0;
    for (int layer = 0; layer < call.n_layers; ++layer) {
      total += std::exp(-call.layer_number(layer, kDensity));
    }
    const double share = static_cast<double>(call.budget) / static_cast<double>(n_prompt);
    const double ratio = std::exp(-call.layer_number(kDensity)) / total * call.n_layers * share;
    const int64_t budget =
        CountFrom(std::clamp(ratio, 0.01, 1.0) * static_cast<double>(n_prompt), n_prompt);
    return std::max(budget, traits_.budget.min);
  }

  // B(l) with total=true: alpha * S' if dense and S' otherwise, with S' such that all layers
  // together hold L times the budget. Where alpha * S' exceeds the prompt, dense layers hold the
  // prompt and sparse layers share the rest.
  int64_t LayerShareOfTotal(const LayerCall& call, int64_t n_prompt) const {
    if (n_prompt <= call.budget) return call.budget;
    int n_dense = 0;
    for (int layer = 0; layer < call.n_layers; ++layer) {
      if (call.layer_number(layer, kDensity) <= c_.gate) ++n_dense;
    }
    const int n_sparse = call.n_layers - n_dense;
    const double all = static_cast<double>(call.budget) * call.n_layers;
    const auto prompt = static_cast<double>(n_prompt);
    double sparse = all / (c_.alpha * n_dense + n_sparse);
    const double dense = c_.alpha * sparse;
    if (dense > prompt && n_sparse > 0) sparse = (all - n_dense * prompt) / n_sparse;
    // 1e-9 makes up for rounding errors just below an integer.
    const double own = call.layer_number(kDensity) > c_.gate ? sparse : dense;
    return CountFrom(own + 1e-9, n_prompt);
  }

  // Heads are equally long unless another method compressed the prompt to different sizes per head.
  static int64_t Longest(const LayerCall& call) {
    int64_t longest = 0;
    for (int head = 0; head < call.n_kv_heads(); ++head) {
      longest = std::max(longest, call.n_slots(head));
    }
    return longest;
  }
  // Entries of the longest head beyond the layer's budget.
  int64_t NumberOver(const LayerCall& call) const {
    if (c_.layer_policy == LayerPolicy::kSoftmax && Exempt(call.layer, call.n_layers)) return 0;
    return std::max<int64_t>(0, Longest(call) - LayerBudget(call));
  }
  // Entries to evict in this pass. A whole prompt evicts them together and sets the threshold.
  // Otherwise one entry goes per pass (Algorithm 1), so that each merge sees those before.
  static int64_t NumberOfVictims(const LayerCall& call, int head, int64_t budget) {
    const int64_t n_over = std::max<int64_t>(0, call.n_slots(head) - budget);
    const bool is_prompt = call.n_seen == call.n_new;
    return is_prompt ? n_over : std::min<int64_t>(1, n_over);
  }

  void CompressLayer(const LayerCall& call, int64_t n_over, PlanList& plans) const {
    if (n_over == 0) return;
    const int64_t budget = Longest(call) - n_over;
    const int64_t n_recent = RecentUnder(c_, budget);
    for (int head = 0; head < call.n_kv_heads(); ++head) {
      plans.again |= NumberOfVictims(call, head, budget) < call.n_slots(head) - budget;
    }

    Plan& plan = plans.Add(call.layer, call.n_kv_heads());
    const auto n_heads = static_cast<size_t>(call.n_kv_heads());
    Scratch& scratch = call.scratch;
    if (scratch.scores.size() < n_heads) scratch.scores.resize(n_heads);
    if (scratch.evicted.size() < n_heads) scratch.evicted.resize(n_heads);
    call.backend.ForEach(call.n_kv_heads(), [&](int64_t i) {
      const int head = static_cast<int>(i);
      // In decode the scores are updated here, in parallel over the heads.
      if (call.phase == Phase::kDecode && call.pass == 0) score::ObserveHeavy(call, head);
      std::vector<double>& scores = scratch.scores[static_cast<size_t>(i)];
      std::vector<int32_t>& evicted = scratch.evicted[static_cast<size_t>(i)];
      evicted.clear();
      const int64_t n_evict = NumberOfVictims(call, head, budget);
      if (n_evict == 0) return;
      const Region region = {.begin = c_.sinks, .end = call.n_slots(head) - n_recent};
      scores.resize(static_cast<size_t>(region.size()));
      score_->Score(call, head, region, scores);
      select_->Evict({.call = call,
                      .kv_head = head,
                      .region = region,
                      .n_keep = region.size() - n_evict,
                      .scores = scores},
                     evicted);
    });
    const auto evicted = std::span<const std::vector<int32_t>>(scratch.evicted).first(n_heads);
    merge_->Merge({.call = call,
                   .protected_entries = {.sinks = c_.sinks, .recent = n_recent},
                   .evicted = evicted},
                  plan);
    for (size_t head = 0; head < n_heads; ++head) {
      const std::span<const Slot> order = call.order(static_cast<int>(head));
      for (const int32_t rank : evicted[head]) {
        plan.heads[head].evict.push_back(order[static_cast<size_t>(rank)]);
      }
    }
  }

  D2oConfig c_;
  Traits traits_;
  score::ScorerPtr score_;
  select::SelectorPtr select_;
  merge::MergerPtr merge_;
};

Result<MethodPtr> Make(const D2oConfig& c) {
  // Densities need the column sums of single query heads, from which those of reduce=max do not
  // follow.
  if (c.reduce == score::Reduce::kMax && c.layer_policy != D2oConfig::LayerPolicy::kUniform) {
    return Error{"d2o: reduce=max: expected layer_policy=uniform"};
  }
  const bool gated = c.layer_policy == D2oConfig::LayerPolicy::kGate;
  if (c.important > 0 && c.recent == CountOrShare(0)) {
    return Error{"d2o: recent: found '0', expected 1 or more, or important=0"};
  }
  if (!gated && (c.total || c.gate_scale != D2oConfig::GateScale::kNone)) {
    return Error{"d2o: total=true and gate_scale=length: expected layer_policy=gate"};
  }
  return MethodPtr(std::make_shared<D2oMethod>(c));
}

Promise Promises(const D2oConfig& c, int64_t budget) {
  // The smallest budget that a layer gets.
  int64_t least = budget;
  if (c.layer_policy == D2oConfig::LayerPolicy::kSoftmax) least = c.sinks + 2;
  if (c.total) least = CountFrom(static_cast<double>(budget) / c.alpha);
  return {.exact = c.layer_policy == D2oConfig::LayerPolicy::kUniform,
          .sinks = c.sinks,
          .recent = RecentUnder(c, least),
          .merging = c.merge.weighting == merge::NearestConfig::Weighting::kCode ? Merging::kAny
                                                                                 : Merging::kHull};
}

}  // namespace

MethodEntry D2o() {
  return Entry<D2oConfig, Make, Promises>(
      "d2o", "heavy hitters; evicted entries merged into kept ones; budgets by layer",
      "D2O, arXiv:2406.13035",
      {"layer_policy=uniform", "total=true", "gate_scale=length", "layer_policy=softmax",
       "similarity=both", "similarity=values", "merge=average", "into_sinks=false",
       "positions=reassigned", "layer_policy=uniform,positions=reassigned",
       "layer_policy=uniform,heads=query", "layer_policy=uniform,recent=0.5",
       "layer_policy=uniform,important=0"});
}

}  // namespace winnow::compression::methods
