#include <algorithm>
#include <cmath>
#include <numbers>
#include <span>
#include <vector>

#include "compression/merge/merge.h"

namespace winnow::compression::merge {
namespace {

using Weighting = NearestConfig::Weighting;
using Similarity = NearestConfig::Similarity;

constexpr int32_t kDropped = -1;

// Where the evicted go, by one kind of vectors.
struct Targets {
  std::span<float> similarity;  // [evicted]
  std::span<int32_t> target;    // [evicted], index into the entries that stay, or kDropped
};

class NearestMerger final : public Merger {
 public:
  explicit NearestMerger(const NearestConfig& config) : c_(config) {}

  std::string_view name() const override { return "nearest"; }
  Needs needs() const override {
    const int n_taus = c_.similarity == Similarity::kBoth ? 2 : 1;
    return {.prefill = {}, .decode = {}, .state = {.n_head_numbers = 2 * n_taus}};
  }
  bool merges_keys() const override { return true; }

  void Merge(const MergeInput& input, cache::HeadPlan& plan) const override {
    const std::span<const Slot> order = input.call.order(input.kv_head);
    const size_t n_evicted = input.evicted.size();
    // The first entry that may take up others; none before it is evicted.
    const auto n_spared = c_.into_sinks ? size_t{0} : static_cast<size_t>(input.region.begin);
    if (n_evicted == 0 || order.size() <= n_evicted + n_spared) return;
    const size_t n_stay = order.size() - n_evicted - n_spared;

    // Everything of this call lies in two vectors that are kept: decode steps allocate nothing.
    std::vector<int32_t>& memory = input.call.scratch.indices;
    std::vector<float>& similarities = input.call.scratch.floats;
    memory.resize(n_stay + 5 * n_evicted);
    similarities.resize(2 * n_evicted);
    const std::span<int32_t> all(memory);
    const std::span<int32_t> stay = all.first(n_stay);
    const std::span<int32_t> evicted = all.subspan(n_stay, n_evicted);
    size_t next = 0;
    size_t n_written = 0;
    for (size_t rank = n_spared; rank < order.size(); ++rank) {
      if (next < n_evicted && input.evicted[next] == static_cast<int32_t>(rank)) {
        evicted[next++] = order[rank];
      } else {
        stay[n_written++] = order[rank];  // by rank: of equal similarities the oldest wins
      }
    }
    const Targets first = {std::span(similarities).first(n_evicted),
                           all.subspan(n_stay + n_evicted, n_evicted)};
    const Targets second = {std::span(similarities).subspan(n_evicted),
                            all.subspan(n_stay + 2 * n_evicted, n_evicted)};
    const std::span<int32_t> by_target = all.subspan(n_stay + 3 * n_evicted);

    Find(input, evicted, stay, c_.similarity == Similarity::kValues, 0, first);
    if (c_.similarity != Similarity::kBoth) {
      Emit(evicted, stay, first, first, by_target, plan);
      return;
    }
    Find(input, evicted, stay, /*by_values=*/true, 1, second);
    Emit(evicted, stay, first, second, by_target, plan);
  }

 private:
  // The nearest entry that stays for each evicted one, dropped where it is below tau.
  static void Nearest(const MergeInput& input, std::span<const int32_t> evicted,
                      std::span<const int32_t> stay, bool by_values, const Targets& out) {
    const cache::Cache& cache = input.call.cache;
    const kernels::Similarity search = {.keys = cache.keys(input.call.layer, input.kv_head),
                                        .values = cache.values(input.call.layer, input.kv_head),
                                        .measure = by_values ? kernels::Similarity::Measure::kValues
                                                             : kernels::Similarity::Measure::kKeys,
                                        .from = evicted,
                                        .to = stay,
                                        .best = out.similarity,
                                        .best_to = out.target};
    input.call.backend.MostSimilar({&search, 1});
  }

  void Find(const MergeInput& input, std::span<const int32_t> evicted,
            std::span<const int32_t> stay, bool by_values, int which, const Targets& out) const {
    Nearest(input, evicted, stay, by_values, out);
    double& defined = input.call.head_number(input.kv_head, 2 * which);
    double& tau = input.call.head_number(input.kv_head, 2 * which + 1);
    const bool first_time = defined == 0;
    if (first_time) {
      tau = 0;
      for (const float u : out.similarity) tau += u;
      tau /= static_cast<double>(evicted.size());
      defined = 1;
    }
    for (size_t i = 0; i < evicted.size(); ++i) {
      const double u = out.similarity[i];
      if (!first_time) tau = c_.beta * u + (1 - c_.beta) * tau;
      if (u < tau) out.target[i] = kDropped;
    }
  }

  double SourceWeight(double u) const {
    switch (c_.weighting) {
      case Weighting::kExponential:
        return std::exp(u);
      case Weighting::kCode:
        return u;
      case Weighting::kAverage:
        break;
    }
    return 1;
  }

  // What the entry that stays weighs, and what the weights of one source add to the divisor.
  double OwnWeight() const { return c_.weighting == Weighting::kExponential ? std::numbers::e : 1; }
  double Share(double u) const { return c_.weighting == Weighting::kExponential ? std::exp(u) : 1; }

  // Merges for every target that something flows into. `keys` and `values` may be the same.
  void Emit(std::span<const int32_t> evicted, std::span<const int32_t> stay, const Targets& keys,
            const Targets& values, std::span<int32_t> by_target, cache::HeadPlan& plan) const {
    const auto n = static_cast<int32_t>(evicted.size());
    const bool together = keys.target.data() == values.target.data();
    // Entry i is key decision i, entry n + i is value decision i.
    const auto target_of = [&](int32_t decision) {
      return decision < n ? keys.target[static_cast<size_t>(decision)]
                          : values.target[static_cast<size_t>(decision - n)];
    };
    size_t n_decisions = 0;
    for (int32_t i = 0; i < (together ? n : 2 * n); ++i) {
      if (target_of(i) != kDropped) by_target[n_decisions++] = i;
    }
    const std::span<int32_t> decisions = by_target.first(n_decisions);
    std::sort(decisions.begin(), decisions.end(), [&](int32_t a, int32_t b) {
      return target_of(a) != target_of(b) ? target_of(a) < target_of(b) : a < b;
    });

    for (size_t begin = 0; begin < decisions.size();) {
      const int32_t target = target_of(decisions[begin]);
      size_t end = begin;
      double key_sum = OwnWeight();
      double value_sum = OwnWeight();
      for (; end < decisions.size() && target_of(decisions[end]) == target; ++end) {
        const int32_t i = decisions[end];
        if (i < n) key_sum += Share(keys.similarity[static_cast<size_t>(i)]);
        if (i >= n) value_sum += Share(values.similarity[static_cast<size_t>(i - n)]);
      }
      if (together) value_sum = key_sum;
      const Slot into = stay[static_cast<size_t>(target)];
      plan.merges.push_back({.into = into, .n_sources = static_cast<int>(end - begin) + 1});
      plan.sources.push_back({.row = into,
                              .key_weight = static_cast<float>(OwnWeight() / key_sum),
                              .value_weight = static_cast<float>(OwnWeight() / value_sum)});
      for (; begin < end; ++begin) {
        const int32_t i = decisions[begin];
        const auto at = static_cast<size_t>(i % n);
        const double key = i < n ? SourceWeight(keys.similarity[at]) / key_sum : 0;
        const double value =
            together || i >= n ? SourceWeight(values.similarity[at]) / value_sum : 0;
        plan.sources.push_back({.row = evicted[at],
                                .key_weight = static_cast<float>(key),
                                .value_weight = static_cast<float>(value)});
      }
    }
  }

  NearestConfig c_;
};

}  // namespace

MergerPtr Nearest(const NearestConfig& config) { return std::make_shared<NearestMerger>(config); }

}  // namespace winnow::compression::merge
