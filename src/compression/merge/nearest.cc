#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <numbers>
#include <span>
#include <vector>

#include "compression/merge/merge.h"

namespace winnow::compression::merge {
namespace {

using Weighting = NearestConfig::Weighting;
using Similarity = NearestConfig::Similarity;

constexpr int32_t kDropped = -1;

// The targets of the evicted entries, by one kind of vectors.
struct Targets {
  std::span<float> similarity;  // [evicted], to the nearest kept entry
  std::span<int32_t> target;    // [evicted], index into `stay`, or kDropped
};

// One KV head's part of a merge.
struct Head {
  int kv_head = 0;
  size_t n_excluded = 0;           // first ranks that cannot be targets
  std::span<int32_t> stay;         // slots that can be targets; in a step nearly the identity
  std::span<int32_t> not_targets;  // slots of spared and evicted entries, ascending
  std::span<int32_t> evicted;      // slots, by rank
  std::span<int32_t> by_target;    // [2 * evicted]
  std::array<Targets, 2> targets;  // by keys, or by the only kind compared; by values
};

// Heads searched in one call: their state fits on the stack.
constexpr size_t kHeadsTogether = 16;

class NearestMerger final : public Merger {
 public:
  explicit NearestMerger(const NearestConfig& config) : c_(config) {}

  std::string_view name() const override { return "nearest"; }
  Needs needs() const override {
    const int n_taus = c_.similarity == Similarity::kBoth ? 2 : 1;
    return {.prefill = {}, .decode = {}, .state = {.n_head_numbers = 2 * n_taus}};
  }
  bool merges_keys() const override { return true; }

  void Merge(const MergeInput& input, Plan& plan) const override {
    // Single evictions are searched together; many at once would take much memory.
    const bool single = std::ranges::all_of(
        input.evicted, [](const std::vector<int32_t>& ranks) { return ranks.size() <= 1; });
    const size_t together = single ? kHeadsTogether : 1;
    for (size_t head = 0; head < input.evicted.size(); head += together) {
      MergeHeads(input, head, std::min(input.evicted.size(), head + together), plan);
    }
  }

 private:
  void MergeHeads(const MergeInput& input, size_t first_head, size_t end_head, Plan& plan) const {
    std::array<Head, kHeadsTogether> all_heads;
    const std::span<Head> heads = Arrange(input, first_head, end_head, all_heads);
    for (const Head& head : heads) Part(input, head);
    const bool both = c_.similarity == Similarity::kBoth;
    Find(input, heads, c_.similarity == Similarity::kValues, 0);
    if (both) Find(input, heads, /*by_values=*/true, 1);
    for (const Head& head : heads) {
      Emit(head, head.targets[both ? 1 : 0], plan.heads[static_cast<size_t>(head.kv_head)]);
    }
    for (const Head& head : heads) Restore(head);
  }

  // The heads that have both evicted entries and possible targets, with their buffers. Buffers are
  // reused, so that decode steps allocate nothing. `stay` is nearly the list of all slots in every
  // step, so it is patched and restored instead of rewritten.
  std::span<Head> Arrange(const MergeInput& input, size_t first_head, size_t end_head,
                          std::span<Head> heads) const {
    const auto sinks = static_cast<size_t>(input.protected_entries.sinks);
    size_t n_heads = 0;
    size_t n_indices = 0;
    size_t n_floats = 0;
    const auto each = [&](const auto& body) {
      for (size_t i = first_head; i < end_head; ++i) {
        const size_t n_slots = input.call.order(static_cast<int>(i)).size();
        const size_t n_evicted = input.evicted[i].size();
        // The first rank that can be a target; none before it is evicted.
        const size_t n_excluded = c_.into_sinks ? 0 : std::min(n_slots, sinks);
        if (n_evicted == 0 || n_slots <= n_evicted + n_excluded) continue;
        body(static_cast<int>(i), n_excluded, n_slots - n_evicted - n_excluded, n_evicted);
      }
    };
    each([&](int, size_t n_excluded, size_t, size_t n_evicted) {
      n_indices += n_excluded + 6 * n_evicted;
      n_floats += 2 * n_evicted;
    });
    std::vector<std::vector<int32_t>>& all_slots = input.call.scratch.all_slots;
    if (all_slots.size() < heads.size()) all_slots.resize(heads.size());
    std::vector<int32_t>& indices = input.call.scratch.indices;
    std::vector<float>& floats = input.call.scratch.floats;
    indices.resize(n_indices);
    floats.resize(n_floats);
    std::span<int32_t> free_indices(indices);
    std::span<float> free_floats(floats);
    const auto take = [](auto& from, size_t n) {
      const auto taken = from.first(n);
      from = from.subspan(n);
      return taken;
    };
    each([&](int kv_head, size_t n_excluded, size_t n_stay, size_t n_evicted) {
      std::vector<int32_t>& slots = all_slots[n_heads];
      Head& head = heads[n_heads++];
      head.kv_head = kv_head;
      head.n_excluded = n_excluded;
      for (size_t slot = slots.size(); slot < n_stay; ++slot) {
        slots.push_back(static_cast<int32_t>(slot));
      }
      head.stay = std::span(slots).first(n_stay);
      head.not_targets = take(free_indices, n_excluded + n_evicted);
      head.evicted = take(free_indices, n_evicted);
      head.by_target = take(free_indices, 2 * n_evicted);
      for (Targets& targets : head.targets) {
        targets = {take(free_floats, n_evicted), take(free_indices, n_evicted)};
      }
    });
    return heads.first(n_heads);
  }

  // Fills in the slots that are evicted and those that stay.
  static void Part(const MergeInput& input, const Head& head) {
    const std::span<const Slot> order = input.call.order(head.kv_head);
    const std::vector<int32_t>& evicted = input.evicted[static_cast<size_t>(head.kv_head)];
    for (size_t i = 0; i < evicted.size(); ++i) {
      head.evicted[i] = order[static_cast<size_t>(evicted[i])];
    }
    const auto spared =
        std::ranges::copy(order.first(head.n_excluded), head.not_targets.begin()).out;
    std::ranges::copy(head.evicted, spared);
    std::ranges::sort(head.not_targets);
    // The last slots fill the places of slots that are no targets.
    auto last = static_cast<Slot>(order.size());
    auto skipped = head.not_targets.rbegin();
    ForEachHole(head, [&](Slot hole) {
      --last;
      for (; skipped != head.not_targets.rend() && *skipped == last; ++skipped) --last;
      head.stay[static_cast<size_t>(hole)] = last;
    });
  }
  static void Restore(const Head& head) {
    ForEachHole(head, [&](Slot hole) { head.stay[static_cast<size_t>(hole)] = hole; });
  }
  // The places of `stay` whose own slots are no targets, ascending.
  static void ForEachHole(const Head& head, const auto& body) {
    for (const Slot slot : head.not_targets) {
      if (static_cast<size_t>(slot) < head.stay.size()) body(slot);
    }
  }

  // Finds the most similar kept entry for each evicted one, and drops those below tau.
  void Find(const MergeInput& input, std::span<const Head> heads, bool by_values, int which) const {
    using Measure = kernels::Similarity::Measure;
    const LayerCall& call = input.call;
    std::array<kernels::Similarity, kHeadsTogether> searches;
    for (size_t i = 0; i < heads.size(); ++i) {
      const Head& head = heads[i];
      const Targets& found = head.targets[static_cast<size_t>(which)];
      searches[i] = {.keys = call.cache.keys(call.layer, head.kv_head),
                     .values = call.cache.values(call.layer, head.kv_head),
                     .measure = by_values ? Measure::kValues : Measure::kKeys,
                     .from = head.evicted,
                     .to = head.stay,
                     // Among equal similarities the oldest wins; slots are in no order.
                     .ranks = call.cache.positions(call.layer, head.kv_head),
                     .best = found.similarity,
                     .best_to = found.target};
    }
    call.backend.MostSimilar(std::span(searches).first(heads.size()));
    for (const Head& head : heads) {
      const Targets& found = head.targets[static_cast<size_t>(which)];
      double& defined = call.head_number(head.kv_head, 2 * which);
      double& tau = call.head_number(head.kv_head, 2 * which + 1);
      const bool first_time = defined == 0;
      if (first_time) {
        // Entries without a finite similarity are dropped and do not change the threshold.
        int64_t n_known = 0;
        tau = 0;
        for (const float u : found.similarity) {
          if (!std::isfinite(u)) continue;
          tau += u;
          ++n_known;
        }
        tau /= static_cast<double>(std::max<int64_t>(1, n_known));
        defined = 1;
      }
      for (size_t i = 0; i < head.evicted.size(); ++i) {
        const double u = found.similarity[i];
        const bool known = std::isfinite(u);
        if (!first_time && known) tau = c_.beta * u + (1 - c_.beta) * tau;
        if (!known || u < tau) found.target[i] = kDropped;
      }
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

  // The weight of the kept entry, and what one source adds to the divisor.
  double OwnWeight() const { return c_.weighting == Weighting::kExponential ? std::numbers::e : 1; }
  double Share(double u) const { return c_.weighting == Weighting::kExponential ? std::exp(u) : 1; }

  // Adds a merge for every target. `values` may be the targets of the keys.
  void Emit(const Head& head, const Targets& values, cache::HeadPlan& plan) const {
    const std::span<const int32_t> evicted = head.evicted;
    const std::span<const int32_t> stay = head.stay;
    const Targets& keys = head.targets[0];
    const auto n = static_cast<int32_t>(evicted.size());
    const bool together = keys.target.data() == values.target.data();
    // Entry i is key decision i, entry n + i is value decision i.
    const auto target_of = [&](int32_t decision) {
      return decision < n ? keys.target[static_cast<size_t>(decision)]
                          : values.target[static_cast<size_t>(decision - n)];
    };
    size_t n_decisions = 0;
    for (int32_t i = 0; i < (together ? n : 2 * n); ++i) {
      if (target_of(i) != kDropped) head.by_target[n_decisions++] = i;
    }
    const std::span<int32_t> decisions = head.by_target.first(n_decisions);
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
