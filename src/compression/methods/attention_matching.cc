// Attention Matching (arXiv:2602.16284): a smaller cache whose attention matches that of the full
// one. With reference queries from a replay of the prompt, for every KV head separately:
//   keys    the `budget` entries with the largest root mean square of their weights
//   biases  b, so that the sum of exp(logit + b) over these is the sum of exp(logit) over all
//           entries, for all reference queries: least squares for exp(b) within [e^-3, e^3]
//   values  so that the output over these is the output over all entries: least squares
// Follows the authors' code (highest attention keys by root mean square, two steps of gradient
// descent).
// Differs: the reference queries of every layer come from the full cache, not from a cache whose
// earlier layers are already compacted; the budget is the same for all heads, where the paper's
// experiments use sizes determined per model. The paper's self-study (generated questions) is left
// out.
#include <algorithm>
#include <cmath>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "compression/methods/attention_head.h"
#include "compression/methods/methods.h"
#include "compression/methods/repeat_prompt.h"
#include "compression/parts.h"
#include "compression/score/stored_keys.h"

namespace winnow::compression::methods {
namespace {

struct AttentionMatchingConfig {
  int queries = 512;  // ours; the paper uses more
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
  float scale = 0;                          // attention's scale, of query . key
  int next_head = 0;           // index over all layers' KV heads: the next head to decide
  std::optional<HeadFit> fit;  // of next_head, once it has begun
};

// Multiply-adds per piece: 10 to 20 ms. Threads synchronize several times per piece, and on busy
// cores each of these waits takes long.
constexpr int64_t kPieceWork = int64_t{1} << 26;

class AttentionMatchingMethod final : public Method {
 public:
  explicit AttentionMatchingMethod(const AttentionMatchingConfig& config)
      : c_(config),
        options_{.bound = c_.bound, .steps = c_.steps, .biases = c_.biases, .values = c_.values} {
    traits_.decisions.prefill = DecisionPolicy::Prefill::kAtEnd;
    traits_.decisions.learns_for_all_budgets = true;
    traits_.decisions.appends_short_prompts = true;
    if (c_.biases) traits_.storage.bias_column = 0;
  }

  const Traits& traits() const override { return traits_; }
  Needs needs() const override {
    Needs needs;
    needs.replay = RepeatPrompt();
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
    // Where there was no room for a replay there are no reference queries: the newest entries stay.
    auto& references = static_cast<References&>(*call.memory);
    references.queries.resize(static_cast<size_t>(call.n_layers));
    const int n_heads = call.n_layers * call.n_kv_heads();
    LayerCall own = call;
    own.layer = references.next_head / call.n_kv_heads();
    const int head = references.next_head % call.n_kv_heads();
    if (!references.fit && own.n_slots(head) > own.budget) {
      references.fit.emplace(Read(own, head, references), options_);
    }
    if (references.fit) references.fit->Run(call.backend, kPieceWork);
    if (references.fit && references.fit->done()) {
      Plan& plan = plans.Add(own.layer, call.n_kv_heads());
      AddTo(plan.heads[static_cast<size_t>(head)], own, head, *references.fit);
      references.fit.reset();
    }
    if (!references.fit) ++references.next_head;
    plans.again = references.next_head < n_heads;
  }

 private:
  // Copies what the fit of a head needs from the cache.
  HeadToFit Read(const LayerCall& call, int kv_head, const References& references) const {
    const cache::CacheShape& shape = call.cache.config().shape;
    const std::span<const Slot> order = call.order(kv_head);
    HeadToFit to = {
        .n_entries = order.size(),
        .keys = std::vector<float>(order.size() * static_cast<size_t>(shape.key_dim)),
        .values = std::vector<float>(order.size() * static_cast<size_t>(shape.value_dim)),
        .factors = {},
        .queries = {},
        .key_dim = static_cast<size_t>(shape.key_dim),
        .value_dim = static_cast<size_t>(shape.value_dim),
        .scale = references.scale,
        .n_kept = static_cast<size_t>(call.budget),
        .n_protected = static_cast<size_t>(call.n_protected)};
    const auto n = std::ssize(order);
    score::ForEachKey(call, kv_head, 0, n, [&](int64_t rank, std::span<const float> key) {
      for (size_t d = 0; d < key.size(); ++d) {
        to.keys[d * to.n_entries + static_cast<size_t>(rank)] = key[d];
      }
    });
    call.backend.ReadRows(call.cache.values(call.layer, kv_head), order, to.values);
    if (c_.biases) {
      // Entries of earlier prompts may have biases already.
      const std::span<const Half> biases = call.half_column(kv_head, 0);
      for (const Slot slot : order) {
        to.factors.push_back(std::exp(float{biases[static_cast<size_t>(slot)]}));
      }
      if (std::ranges::count(to.factors, 1.0f) == n) to.factors.clear();
    }
    const std::vector<float>& all = references.queries[static_cast<size_t>(call.layer)];
    const size_t width = static_cast<size_t>(call.group()) * to.key_dim;
    const size_t of_row = static_cast<size_t>(call.n_kv_heads()) * width;
    for (size_t at = static_cast<size_t>(kv_head) * width; at < all.size(); at += of_row) {
      const auto first = all.begin() + static_cast<ptrdiff_t>(at);
      to.queries.insert(to.queries.end(), first, first + static_cast<ptrdiff_t>(width));
    }
    return to;
  }

  static void AddTo(cache::HeadPlan& plan, const LayerCall& call, int kv_head, const HeadFit& fit) {
    const std::span<const Slot> order = call.order(kv_head);
    for (const int32_t rank : fit.evicted()) {
      plan.evict.push_back(order[static_cast<size_t>(rank)]);
    }
    const std::vector<double>& factors = fit.factors();
    for (size_t i = 0; i < factors.size(); ++i) {
      const Slot slot = order[static_cast<size_t>(fit.kept()[i])];
      const float old = call.half_column(kv_head, 0)[static_cast<size_t>(slot)];
      plan.biases.push_back({slot, old + static_cast<float>(std::log(factors[i]))});
    }
    if (fit.values().rows() == 0) return;
    for (const int32_t rank : fit.kept()) {
      plan.rewrite.push_back(order[static_cast<size_t>(rank)]);
    }
    for (const double x : fit.values().values) plan.new_values.push_back(static_cast<float>(x));
  }

  AttentionMatchingConfig c_;
  HeadFitOptions options_;
  Traits traits_;
};

Result<MethodPtr> Make(const AttentionMatchingConfig& c) {
  return MethodPtr(std::make_shared<AttentionMatchingMethod>(c));
}

Promise Promises(const AttentionMatchingConfig& c, int64_t) {
  return {.exact = true, .merging = c.values ? Merging::kAny : Merging::kNone};
}

}  // namespace

MethodEntry AttentionMatching() {
  return Entry<AttentionMatchingConfig, Make, Promises>(
      "attention-matching", "fewer entries whose biases and values are fitted to act like all",
      "Attention Matching, arXiv:2602.16284");
}

}  // namespace winnow::compression::methods
