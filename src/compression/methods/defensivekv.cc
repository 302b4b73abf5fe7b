// DefensiveKV (arXiv:2510.13334): what the last prompt tokens attend to, judged by the worst case:
// the largest weight that any query head of the group gave an entry in any row of the window, but
// at least the KV head's mean of these.
//  weights of a row before the window, averaged over neighbours, rescaled to their sum
//  s = max over the window's rows and the group;  s = max(s, mean s)
//  s = s * |W_O v|_1 (mean over the group) as a share over the KV heads of the layer
// The entries that make up 0.9 of the mean attention, less the window's share of it, come first.
// All heads of a layer share its budget; layer=true: all layers share one (Layer-DefensiveKV).
// Differs from the authors' code: that subtracts from 0.9 the attention to the entries just before
// the window, apparently by mistake. Here it is the attention to the window, which always stays.
// Implements Method rather than combining parts: it reads weights of single query heads and shares
// over the layer's heads.
#include <algorithm>
#include <limits>
#include <memory>
#include <numeric>
#include <span>
#include <utility>
#include <vector>

#include "compression/methods/methods.h"
#include "compression/numbers.h"
#include "compression/parts.h"
#include "compression/score/pool.h"
#include "compression/score/projected_values.h"
#include "compression/score/score.h"
#include "compression/select/best_of_heads.h"

namespace winnow::compression::methods {
namespace {

struct DefensiveKvConfig {
  int window = 32;    // [code]
  int kernel = 5;     // [code]
  double mass = 0.9;  // [code]
  bool layer = false;
};

template <class Visitor>
void Visit(DefensiveKvConfig& c, Visitor& v) {
  v("window", c.window, "observation window: last prompt tokens that vote, and stay",
    Range{1, 1 << 16});
  v("kernel", c.kernel, "smoothing width (average), odd", Range{1, score::kMaxKernel});
  v("mass", c.mass, "share of the mean attention whose entries come first", Range{0, 1});
  v("layer", c.layer, "one budget for all layers, instead of one for each");
}

using select::ScoredHead;

// Scores of the layers computed so far.
struct ScoresSoFar final : CopiedMemory<ScoresSoFar> {
  std::vector<ScoredHead> heads;
};

class DefensiveKvMethod final : public Method {
 public:
  explicit DefensiveKvMethod(const DefensiveKvConfig& config)
      : c_(config),
        traits_({.decisions = {.prefill = config.layer ? DecisionPolicy::Prefill::kAtEnd
                                                       : DecisionPolicy::Prefill::kEachLayer,
                               .appends_short_prompts = config.layer}}) {}

  const Traits& traits() const override { return traits_; }
  Needs needs() const override {
    return {.prefill = {.last_rows = c_.window, .reduce = kernels::TapSpec::Reduce::kNone}};
  }
  // One head may take the whole budget of its layer, or of the model.
  int64_t MaxSlots(int64_t, int64_t n) const override { return n; }
  int64_t TotalSlots(int64_t budget, int64_t n, int n_layers) const override {
    return std::min(budget, n) * n_layers;
  }
  int64_t LayerSlots(int, int n_layers, int64_t budget, int64_t n) const override {
    return std::min(n, c_.layer ? budget * n_layers : budget);
  }
  std::unique_ptr<Memory> MakeMemory() const override {
    return c_.layer ? std::make_unique<ScoresSoFar>() : nullptr;
  }

  void Decide(const LayerCall& call, PlanList& plans) const override {
    if (call.phase == Phase::kDecode || call.n_seen <= call.budget) return;
    std::vector<ScoredHead> heads = ScoreLayer(call);
    if (!c_.layer) {
      select::KeepBest(call, heads, LayerSlots(call), plans);
      return;
    }
    auto& all = static_cast<ScoresSoFar&>(*call.memory);
    for (ScoredHead& head : heads) all.heads.push_back(std::move(head));
  }
  void DecideAll(const LayerCall& call, PlanList& plans) const override {
    if (!c_.layer || call.phase == Phase::kDecode || call.n_seen <= call.budget) return;
    const auto& all = static_cast<const ScoresSoFar&>(*call.memory);
    select::KeepBest(call, all.heads, LayerSlots(call) * call.n_layers, plans);
  }

 private:
  int64_t Window(const LayerCall& call) const { return WindowUnder(call.budget, c_.window); }
  // Entries before the window that the heads of a layer keep together.
  int64_t LayerSlots(const LayerCall& call) const {
    return (call.budget - Window(call)) * call.n_kv_heads();
  }

  std::vector<ScoredHead> ScoreLayer(const LayerCall& call) const {
    std::vector<ScoredHead> heads;
    std::vector<std::vector<double>> means;  // [kv_head][entry before the window]
    double window_mass = 0;
    for (int head = 0; head < call.n_kv_heads(); ++head) {
      const Region region = {0, std::max<int64_t>(0, call.n_slots(head) - Window(call))};
      const auto n = static_cast<size_t>(region.size());
      heads.push_back({call.layer, head, region, std::vector<double>(n)});
      means.emplace_back(n);
      window_mass += Worst(call, heads.back(), means.back()) / call.n_kv_heads();
    }
    ScaleByValueShare(call, heads);
    double largest = 0;
    for (const ScoredHead& head : heads) {
      for (const double score : head.scores) largest = std::max(largest, score, ScoreLess);
    }
    const int64_t max = std::max<int64_t>(0, call.budget - Window(call));
    for (size_t i = 0; i < heads.size(); ++i) {
      for (const int32_t rank : First(means[i], c_.mass - window_mass, max)) {
        heads[i].scores[static_cast<size_t>(rank)] = largest;
      }
    }
    return heads;
  }

  // Fills in head.scores, the largest smoothed weight of every entry before the window but at least
  // their mean, and `means`, the mean weights. Returns the mean weight of the window.
  double Worst(const LayerCall& call, ScoredHead& head, std::vector<double>& means) const {
    const std::span<const Slot> order = call.order(head.kv_head);
    const int n_rows = static_cast<int>(std::min<int64_t>(call.taps->n_last_rows, Window(call)));
    const double share = 1.0 / (std::max(n_rows, 1) * call.group());
    const size_t n = means.size();
    double window_mass = 0;
    std::vector<double> row(n);
    for (int i = 0; i < call.group(); ++i) {
      const int q_head = head.kv_head * call.group() + i;
      for (int at = call.taps->n_last_rows - n_rows; at < call.taps->n_last_rows; ++at) {
        const std::span<const float> weights = call.last_row(q_head, at);
        for (size_t rank = n; rank < order.size(); ++rank) {
          window_mass += share * weights[static_cast<size_t>(order[rank])];
        }
        for (size_t rank = 0; rank < n; ++rank) {
          row[rank] = weights[static_cast<size_t>(order[rank])];
          means[rank] += share * row[rank];
        }
        const double sum = std::accumulate(row.begin(), row.end(), 0.0);
        score::Smooth(score::Pool::kAverage, c_.kernel, call.scratch.numbers, row);
        const double smooth_sum = std::accumulate(row.begin(), row.end(), 0.0);
        const double restored = smooth_sum > 0 ? sum / smooth_sum : 0;
        for (size_t rank = 0; rank < n; ++rank) {
          head.scores[rank] = std::max(head.scores[rank], restored * row[rank]);
        }
      }
    }
    const double mean = std::accumulate(head.scores.begin(), head.scores.end(), 0.0) /
                        static_cast<double>(std::max<size_t>(n, 1));
    for (double& score : head.scores) score = std::max(score, mean);
    return window_mass;
  }

  // Multiplies scores by the value's share among all heads' values at the same place, counted from
  // the newest entry: after an earlier prompt heads may differ in length.
  static void ScaleByValueShare(const LayerCall& call, std::vector<ScoredHead>& heads) {
    std::vector<std::vector<double>> norms;
    size_t longest = 0;
    for (const ScoredHead& head : heads) {
      norms.push_back(score::MeanProjectedNorms(call, head.kv_head, head.region, score::Norm::kL1));
      longest = std::max(longest, norms.back().size());
    }
    std::vector<double> sums(longest);  // from the newest entry to the oldest
    for (const std::vector<double>& norm : norms) {
      for (size_t i = 0; i < norm.size(); ++i) sums[i] += norm[norm.size() - 1 - i];
    }
    for (size_t h = 0; h < heads.size(); ++h) {
      const size_t n = norms[h].size();
      for (size_t i = 0; i < n; ++i) {
        heads[h].scores[n - 1 - i] *= Fraction(norms[h][n - 1 - i], sums[i], 1);
      }
    }
  }

  // The best entries whose means together stay below `mass` of the sum of all, at most `max` of
  // them.
  static std::vector<int32_t> First(const std::vector<double>& means, double mass, int64_t max) {
    std::vector<int32_t> ranks(means.size());
    std::iota(ranks.begin(), ranks.end(), 0);
    std::sort(ranks.begin(), ranks.end(), BestFirst{means});
    const double all = std::accumulate(means.begin(), means.end(), 0.0);
    double sum = 0;
    size_t n = 0;
    for (; n < ranks.size() && static_cast<int64_t>(n) < max; ++n) {
      sum += means[static_cast<size_t>(ranks[n])];
      if (!(sum < mass * all)) break;
    }
    ranks.resize(n);
    return ranks;
  }

  DefensiveKvConfig c_;
  Traits traits_;
};

Result<MethodPtr> Make(const DefensiveKvConfig& c) {
  WINNOW_TRY(score::CheckPoolWidth("defensivekv", c.kernel));
  return MethodPtr(std::make_shared<DefensiveKvMethod>(c));
}

Promise Promises(const DefensiveKvConfig& c, int64_t budget) {
  return {.recent = WindowUnder(budget, c.window)};
}

}  // namespace

MethodEntry DefensiveKv() {
  return Entry<DefensiveKvConfig, Make, Promises>(
      "defensivekv", "largest weight from any of the last queries, times the value's share",
      "DefensiveKV, arXiv:2510.13334", {"layer=true"});
}

}  // namespace winnow::compression::methods
