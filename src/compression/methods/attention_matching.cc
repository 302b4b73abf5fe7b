// Attention Matching (arXiv:2602.16284): fewer entries that act like all. With reference queries
// from a replay of the prompt, for every KV head on its own:
//   keys    the `budget` entries with the largest root mean square of their weights
//   biases  b, so that sum of exp(logit + b) over these is the sum of exp(logit) over all, for all
//           reference queries: least squares for exp(b) within [e^-3, e^3]
//   values  so that the output over these is the output over all: least squares
// Read from its code (highest attention keys by root mean square, two steps of gradient descent).
// Differs: the reference queries of every layer are those of the full cache, not of a cache whose
// earlier layers are compacted already; the budget is the same for all heads, where the paper's
// experiments bring sizes for every model. No question of its own is made up (self-study).
#include <cmath>
#include <memory>
#include <numeric>
#include <span>
#include <vector>

#include "compression/methods/attention_fit.h"
#include "compression/methods/methods.h"
#include "compression/numbers.h"
#include "compression/parts.h"
#include "compression/score/stored_keys.h"

namespace winnow::compression::methods {
namespace {

struct AttentionMatchingConfig {
  int queries = 512;  // ours; the paper's runs take more
  double bound = 3;   // [code]
  int steps = 2;      // [code]
  bool biases = true;
  bool values = true;
};

template <class Visitor>
void Visit(AttentionMatchingConfig& c, Visitor& v) {
  v("queries", c.queries, "tokens of the replay whose queries are the reference",
    Range{1, 1 << 16});
  v("bound", c.bound, "largest bias", Range{0, 7});
  v("steps", c.steps, "steps of gradient descent on the biases", Range{0, 1000});
  v("biases", c.biases, "fit biases (ablation)");
  v("values", c.values, "fit values (ablation)");
}

struct References final : CopiedMemory<References> {
  std::vector<std::vector<float>> queries;  // [layer][row, q_head, dim]
  float scale = 0;                          // of a query's product with a key
};

class AttentionMatchingMethod final : public Method {
 public:
  explicit AttentionMatchingMethod(const AttentionMatchingConfig& config) : c_(config) {
    traits_.decisions.prefill = DecisionPolicy::Prefill::kAtEnd;
    traits_.decisions.learns_for_all_budgets = true;
    if (c_.biases) traits_.storage.bias_column = 0;
  }

  const Traits& traits() const override { return traits_; }
  Needs needs() const override {
    Needs needs;
    needs.replay.text = "\n\nRepeat the previous context exactly.\n";
    needs.replay.next_text = "\n\nRepeat the part of the previous context exactly, starting with";
    needs.replay.rows = {
        .which = attention::RowSpec::Which::kEven, .n = c_.queries, .queries = true};
    needs.state.n_half_columns = c_.biases ? 1 : 0;
    return needs;
  }
  int64_t MaxSlots(int64_t, int64_t n) const override { return n; }
  int64_t TotalSlots(int64_t budget, int64_t n, int n_layers) const override {
    return std::min(budget, n) * n_layers;
  }
  int64_t LayerSlots(int, int, int64_t budget, int64_t n) const override {
    return std::min(n, budget);
  }
  std::unique_ptr<Memory> MakeMemory() const override { return std::make_unique<References>(); }
  void Decide(const LayerCall&, PlanList&) const override {}

  void ObserveReplay(const LayerCall& call) const override {
    auto& references = static_cast<References&>(*call.memory);
    references.scale = call.scale;
    std::vector<std::vector<float>>& all = references.queries;
    all.resize(static_cast<size_t>(call.n_layers));
    std::vector<float>& layer = all[static_cast<size_t>(call.layer)];
    layer.insert(layer.end(), call.rows->queries.begin(), call.rows->queries.end());
  }

  void DecideAll(const LayerCall& call, PlanList& plans) const override {
    if (call.n_seen <= call.budget) return;
    // Where there was no room for a replay there is no reference: the newest entries stay.
    auto& references = static_cast<References&>(*call.memory);
    references.queries.resize(static_cast<size_t>(call.n_layers));
    // A head at a time: it can take a second.
    LayerCall own = call.WithTaps(call.taps);
    own.layer = call.pass / call.n_kv_heads();
    const int head = call.pass % call.n_kv_heads();
    Plan& plan = plans.Add(own.layer, call.n_kv_heads());
    Compact(own, head, references, plan.heads[static_cast<size_t>(head)]);
    plans.again = call.pass + 1 < call.n_layers * call.n_kv_heads();
  }

 private:
  // exp(logit - the row's largest) of every reference query of the group for every entry, oldest
  // first.
  static Numbers Exponentials(const LayerCall& call, int kv_head, std::span<const float> queries,
                              float scale) {
    const auto n = static_cast<size_t>(call.n_slots(kv_head));
    const auto dim = static_cast<size_t>(call.cache.config().shape.key_dim);
    const auto group = static_cast<size_t>(call.group());
    const size_t n_queries = queries.size() / dim / static_cast<size_t>(call.n_q_heads);
    Numbers out(n_queries * group, n);
    score::ForEachKey(
        call, kv_head, 0, call.n_slots(kv_head), [&](int64_t rank, std::span<const float> key) {
          for (size_t row = 0; row < out.rows(); ++row) {
            const size_t q_head = static_cast<size_t>(kv_head) * group + row % group;
            const std::span<const float> q = queries.subspan(
                (row / group * static_cast<size_t>(call.n_q_heads) + q_head) * dim, dim);
            float dot = 0;
            for (size_t i = 0; i < dim; ++i) dot += q[i] * key[i];
            out[row][static_cast<size_t>(rank)] = double{scale} * dot;
          }
        });
    for (size_t row = 0; row < out.rows(); ++row) {
      const double max = *std::max_element(out[row].begin(), out[row].end(), ScoreLess);
      for (double& x : out[row]) x = std::exp(x - max);
    }
    return out;
  }

  void Compact(const LayerCall& call, int kv_head, const References& references,
               cache::HeadPlan& plan) const {
    const int64_t n = call.n_slots(kv_head);
    if (n <= call.budget) return;
    const std::span<const Slot> order = call.order(kv_head);
    Numbers all = Exponentials(call, kv_head, references.queries[static_cast<size_t>(call.layer)],
                               references.scale);
    if (c_.biases) AddOldBiases(call, kv_head, all);
    const size_t n_rows = all.rows();

    std::vector<double> mass(n_rows), square(static_cast<size_t>(n));
    for (size_t row = 0; row < n_rows; ++row) {
      mass[row] = std::accumulate(all[row].begin(), all[row].end(), 0.0);
      for (size_t i = 0; i < square.size(); ++i) {
        square[i] += all[row][i] * all[row][i] / (mass[row] * mass[row]);
      }
    }
    std::vector<int32_t> ranks(square.size());
    std::iota(ranks.begin(), ranks.end(), 0);
    // What is protected comes first, the newest as ever.
    std::rotate(ranks.begin(), ranks.end() - call.n_protected, ranks.end());
    std::sort(ranks.begin() + call.n_protected, ranks.end(), BestFirst{square});
    std::vector<int32_t> kept(ranks.begin(), ranks.begin() + call.budget);
    std::sort(kept.begin(), kept.end());
    std::sort(ranks.begin() + call.budget, ranks.end());
    for (auto rank = ranks.begin() + call.budget; rank != ranks.end(); ++rank) {
      plan.evict.push_back(order[static_cast<size_t>(*rank)]);
    }

    Numbers some(n_rows, kept.size());
    for (size_t row = 0; row < n_rows; ++row) {
      for (size_t i = 0; i < kept.size(); ++i) {
        some[row][i] = all[row][static_cast<size_t>(kept[i])];
      }
    }
    if (n_rows == 0) return;
    if (c_.biases) {
      const std::vector<double> factors =
          FitFactors(some, mass, std::exp(-c_.bound), std::exp(c_.bound), c_.steps);
      for (size_t i = 0; i < kept.size(); ++i) {
        const Slot slot = order[static_cast<size_t>(kept[i])];
        const float old = call.half_column(kv_head, 0)[static_cast<size_t>(slot)];
        plan.biases.push_back({slot, old + static_cast<float>(std::log(factors[i]))});
        for (size_t row = 0; row < n_rows; ++row) some[row][i] *= factors[i];
      }
    }
    if (c_.values) AddValues(call, kv_head, all, mass, some, kept, plan);
  }

  // Entries of prompts before may have biases.
  static void AddOldBiases(const LayerCall& call, int kv_head, Numbers& exponentials) {
    const std::span<const Half> biases = call.half_column(kv_head, 0);
    const std::span<const Slot> order = call.order(kv_head);
    for (size_t i = 0; i < order.size(); ++i) {
      const double factor = std::exp(double{biases[static_cast<size_t>(order[i])]});
      if (factor == 1) continue;
      for (size_t row = 0; row < exponentials.rows(); ++row) exponentials[row][i] *= factor;
    }
  }

  static void AddValues(const LayerCall& call, int kv_head, const Numbers& all,
                        std::span<const double> mass, Numbers& some, std::span<const int32_t> kept,
                        cache::HeadPlan& plan) {
    const auto dim = static_cast<size_t>(call.cache.config().shape.value_dim);
    Numbers outputs(all.rows(), dim);
    score::ForEachRow(call, kv_head, call.cache.values(call.layer, kv_head), 0,
                      call.n_slots(kv_head), [&](int64_t rank, std::span<const float> value) {
                        for (size_t row = 0; row < all.rows(); ++row) {
                          const double weight = all[row][static_cast<size_t>(rank)] / mass[row];
                          for (size_t i = 0; i < dim; ++i) outputs[row][i] += weight * value[i];
                        }
                      });
    for (size_t row = 0; row < some.rows(); ++row) {
      const double sum = std::accumulate(some[row].begin(), some[row].end(), 0.0);
      for (double& x : some[row]) x = Fraction(x, sum, 0);
    }
    const Numbers fitted = LeastSquares(some, outputs);
    const std::span<const Slot> order = call.order(kv_head);
    for (size_t i = 0; i < kept.size(); ++i) {
      plan.rewrite.push_back(order[static_cast<size_t>(kept[i])]);
      for (const double x : fitted[i]) plan.new_values.push_back(static_cast<float>(x));
    }
  }

  AttentionMatchingConfig c_;
  Traits traits_;
};

Result<MethodPtr> Make(const AttentionMatchingConfig& c) {
  return MethodPtr(std::make_shared<AttentionMatchingMethod>(c));
}

Promise Promises(const AttentionMatchingConfig& c, int64_t) {
  return {.exact = true, .merges = c.values};
}

}  // namespace

MethodEntry AttentionMatching() {
  return Entry<AttentionMatchingConfig, Make, Promises>(
      "attention-matching", "fewer entries whose biases and values are fitted to act like all",
      "Attention Matching, arXiv:2602.16284");
}

}  // namespace winnow::compression::methods
