// CAKE (arXiv:2503.12491): layers share one budget by preference, which is high where attention is
// spread over many tokens and shifts with the queries. Layers that are already compressed shrink
// again when later layers' preferences become known (cascading).
// Implements Method rather than combining parts: a call for one layer makes plans for all layers
// before it, and the scores kept for them must move with their entries. Based on a fork of the
// authors' code.
#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "compression/budget/budget.h"
#include "compression/methods/methods.h"
#include "compression/numbers.h"
#include "compression/parts.h"
#include "compression/score/pool.h"
#include "compression/score/score.h"
#include "compression/select/select.h"

namespace winnow::compression::methods {
namespace {

struct CakeConfig {
  int window = 32;     // [code]
  double tau1 = 1.6;   // entropy  [code: Llama-3.1-8B at 1024; others per model and budget]
  double tau2 = 0.4;   // variance  [same]
  double gamma = 200;  // variance in the score  [ours: not in the code we could read]
  int kernel = 5;      // [code]
};

template <class Visitor>
void Visit(CakeConfig& c, Visitor& v) {
  v("window", c.window, "observation window: last prompt tokens that vote, and stay",
    Range{1, 1 << 20});
  v("tau1", c.tau1, "temperature of attention entropy in a layer's preference", Range{0.1, 100});
  v("tau2", c.tau2, "temperature of attention variance in a layer's preference", Range{0.1, 100});
  v("gamma", c.gamma, "weight of the variance of a token's attention in its score", Range{0, 1e9});
  v("kernel", c.kernel, "smoothing width (average), odd", Range{1, score::kMaxKernel});
}

constexpr int kScore = 0;       // column: the score of a token, mean + gamma * variance, smoothed
constexpr int kPreference = 0;  // layer number

class CakeMethod final : public Method {
 public:
  explicit CakeMethod(const CakeConfig& config) : c_(config), select_(select::TopK()) {}

  const Traits& traits() const override { return traits_; }
  Needs needs() const override {
    // Entropies and variances are computed per query head.
    return {.prefill = {.last_rows = c_.window, .reduce = kernels::TapSpec::Reduce::kNone},
            .state = {.n_columns = 1, .n_layer_numbers = 1}};
  }
  // The first layers hold more than their share until the later layers are known.
  int64_t MaxSlots(int64_t, int64_t n) const override { return n; }
  int64_t TotalSlots(int64_t budget, int64_t n, int n_layers) const override {
    return std::min(budget, n) * n_layers;
  }

  void Decide(const LayerCall& call, PlanList& plans) const override {
    if (call.phase == Phase::kDecode) return;
    const int64_t window = WindowUnder(call.budget, c_.window);
    double entropy = 0, variance = 0;
    for (int head = 0; head < call.n_kv_heads(); ++head) {
      ScoreHead(call, head, window, entropy, variance);
    }
    // Rounding may leave an entropy below 0. NaN counts as 0. A stored 0 means that the layer was
    // not seen yet.
    const double preference = std::pow(std::max(0.0, entropy), 1 / c_.tau1) *
                              std::pow(std::max(0.0, variance), 1 / c_.tau2);
    call.layer_number(kPreference) = std::max(preference, std::numeric_limits<double>::min());
    if (call.n_seen <= call.budget) return;

    // Layers seen so far. In a later chunk that is all of them: layers after this one count with
    // their preferences from the chunk before.
    std::vector<double> preferences;
    for (int layer = 0; layer < call.n_layers; ++layer) {
      const double other = call.layer_number(layer, kPreference);
      if (layer > call.layer && other == 0) break;
      preferences.push_back(other);
    }
    std::vector<int64_t> sizes(preferences.size());
    budget::Share(preferences, (call.budget - window) * call.n_layers, call.n_seen - window, sizes);
    for (int layer = 0; layer <= call.layer; ++layer) {
      Shrink(call, layer, window, sizes[static_cast<size_t>(layer)], plans);
    }
  }

 private:
  // Scores one KV head's entries before the window, and adds its query heads' share to the layer's
  // entropy and variance.
  void ScoreHead(const LayerCall& call, int kv_head, int64_t window, double& entropy,
                 double& variance) const {
    const std::span<const Slot> order = call.order(kv_head);
    const int64_t n = std::max<int64_t>(0, call.n_slots(kv_head) - window);
    const std::span<const Slot> prefix = order.first(static_cast<size_t>(n));
    const int n_rows = static_cast<int>(std::min<int64_t>(call.taps->n_last_rows, window));
    const int first_row = call.taps->n_last_rows - n_rows;
    std::vector<double> scores(prefix.size()), means(prefix.size()), shifts(prefix.size());
    for (int head = kv_head * call.group(); head < (kv_head + 1) * call.group(); ++head) {
      std::fill(means.begin(), means.end(), 0.0);
      for (int row = first_row; row < call.taps->n_last_rows; ++row) {
        const std::span<const float> weights = call.last_row(head, row);
        for (size_t i = 0; i < prefix.size(); ++i) {
          const double weight = weights[static_cast<size_t>(prefix[i])];
          means[i] += weight / n_rows;
          entropy -= weight * std::log(weight + 1e-10);
        }
      }
      std::fill(shifts.begin(), shifts.end(), 0.0);
      for (int row = first_row; row < call.taps->n_last_rows && n_rows > 1; ++row) {
        const std::span<const float> weights = call.last_row(head, row);
        for (size_t i = 0; i < prefix.size(); ++i) {
          const double difference = weights[static_cast<size_t>(prefix[i])] - means[i];
          shifts[i] += difference * difference / (n_rows - 1);
        }
      }
      for (size_t i = 0; i < prefix.size(); ++i) {
        variance += shifts[i];
        scores[i] += (means[i] + c_.gamma * shifts[i]) / call.group();
      }
    }
    // Averaging over neighbours and over the group commute: smooth once, after the group's mean.
    score::Smooth(score::Pool::kAverage, c_.kernel, call.scratch.numbers, scores);
    const std::span<double> kept = call.column(kv_head, kScore);
    for (size_t i = 0; i < prefix.size(); ++i) kept[static_cast<size_t>(prefix[i])] = scores[i];
  }

  // Brings a layer to `size` entries before the window, by the scores stored for them.
  void Shrink(const LayerCall& call, int layer, int64_t window, int64_t size,
              PlanList& plans) const {
    LayerCall other = call;
    other.layer = layer;
    Plan* plan = nullptr;
    for (int head = 0; head < call.n_kv_heads(); ++head) {
      const Region region = {0, std::max<int64_t>(0, other.n_slots(head) - window)};
      if (region.size() <= size) continue;
      const std::span<const Slot> order = other.order(head);
      const std::span<const double> kept = other.column(head, kScore);
      std::vector<double>& scores = call.scratch.numbers;
      scores.clear();
      for (int64_t rank = 0; rank < region.end; ++rank) {
        scores.push_back(kept[static_cast<size_t>(order[static_cast<size_t>(rank)])]);
      }
      std::vector<int32_t>& ranks = call.scratch.ranks;
      ranks.clear();
      select_->Evict(
          {.call = other, .kv_head = head, .region = region, .n_keep = size, .scores = scores},
          ranks);
      if (plan == nullptr) plan = &plans.Add(layer, call.n_kv_heads());
      for (const int32_t rank : ranks) {
        plan->heads[static_cast<size_t>(head)].evict.push_back(order[static_cast<size_t>(rank)]);
      }
    }
  }

  CakeConfig c_;
  select::SelectorPtr select_;
  Traits traits_ = {};
};

Result<MethodPtr> Make(const CakeConfig& c) {
  WINNOW_TRY(score::CheckPoolWidth("cake", c.kernel));
  return MethodPtr(std::make_shared<CakeMethod>(c));
}

Promise Promises(const CakeConfig& c, int64_t budget) {
  return {.exact = false, .recent = WindowUnder(budget, c.window)};
}

}  // namespace

MethodEntry Cake() {
  return Entry<CakeConfig, Make, Promises>(
      "cake", "layers share the budget by the entropy and variance of their attention",
      "CAKE, arXiv:2503.12491");
}

}  // namespace winnow::compression::methods
