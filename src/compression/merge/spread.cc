#include <algorithm>
#include <span>
#include <vector>

#include "base/rng.h"
#include "compression/merge/merge.h"
#include "compression/numbers.h"
#include "compression/score/pool.h"

namespace winnow::compression::merge {
namespace {

constexpr int kAttention = 0;  // column: attention received so far
constexpr int kDraws = 0;      // head number: draws made

// The share of an evicted value that ends in an entry that stays.
struct Arrival {
  size_t rank = 0;  // of the entry that stays
  Slot from = 0;
  double weight = 0;
};

struct Head {
  const LayerCall& call;
  int kv_head = 0;
};

class SpreadMerger final : public Merger {
 public:
  explicit SpreadMerger(const SpreadConfig& config) : c_(config) {}

  std::string_view name() const override { return "spread"; }
  Needs needs() const override {
    const cache::StateShape state = {.n_columns = accumulates() ? 1 : 0, .n_head_numbers = 1};
    const kernels::TapSpec taps = {.last_rows = accumulates() ? 0 : 1,
                                   .column_sums = accumulates(),
                                   .reduce = score::TapReduceFrom(c_.reduce)};
    return {.prefill = taps, .decode = taps, .state = state};
  }
  void Observe(const LayerCall& call) const override {
    if (!accumulates()) return;
    for (int head = 0; head < call.n_kv_heads(); ++head) {
      const std::span<double> sums = call.column(head, kAttention);
      const std::vector<double>& added = call.taps->column_sums[static_cast<size_t>(head)];
      for (size_t slot = 0; slot < sums.size(); ++slot) sums[slot] += added[slot];
    }
  }

  void Merge(const MergeInput& input, Plan& plan) const override {
    for (size_t i = 0; i < input.evicted.size(); ++i) {
      const Head head = {.call = input.call, .kv_head = static_cast<int>(i)};
      const std::vector<int32_t>& evicted = input.evicted[i];
      if (evicted.empty()) continue;
      if (evicted.size() == 1) {
        SpreadOne(head, evicted[0], plan.heads[i]);
      } else {
        SpreadAll(head, evicted, plan.heads[i]);
      }
    }
  }

 private:
  bool accumulates() const { return c_.attention == SpreadConfig::Attention::kAccumulated; }

  double Attention(const Head& head, int64_t rank) const {
    const Slot slot = head.call.order(head.kv_head)[static_cast<size_t>(rank)];
    if (accumulates()) {
      return head.call.column(head.kv_head, kAttention)[static_cast<size_t>(slot)];
    }
    return head.call.last_row(head.kv_head,
                              head.call.taps->n_last_rows - 1)[static_cast<size_t>(slot)];
  }

  // The share of entry `rank`'s value that each of the next entries gets: 0 if the draw fails, or
  // if there is no newer entry.
  double Factor(const Head& head, int64_t rank) const {
    const auto n_entries = static_cast<int64_t>(head.call.order(head.kv_head).size());
    const int64_t n_next = std::min<int64_t>(c_.reach, n_entries - rank - 1);
    if (n_next == 0) return 0;
    double next = 0;
    for (int64_t i = 1; i <= n_next; ++i) next += Attention(head, rank + i);
    const double own = Attention(head, rank) * static_cast<double>(n_next);
    // own / 0 is infinite. NaN attention spreads nothing.
    const double ratio = own > 0 ? own / next : 0;
    const double p = ratio > 0 ? std::min(1.0, ratio) : 0;
    const auto share = 1 / static_cast<double>(n_next);
    if (c_.expected) return p * share;
    return Draw(head) < p ? share : 0;
  }

  // The n-th draw of a head depends only on the seed, the head and n, not on threads or other
  // heads.
  double Draw(const Head& head) const {
    double& n_draws = head.call.head_number(head.kv_head, kDraws);
    uint64_t seed = static_cast<uint64_t>(c_.seed);
    for (const uint64_t part :
         {static_cast<uint64_t>(head.call.layer), static_cast<uint64_t>(head.kv_head),
          static_cast<uint64_t>(CountFrom(n_draws))}) {
      seed = Rng(seed ^ part).Next();
    }
    n_draws += 1;
    return Rng(seed).Uniform();
  }

  void SpreadOne(const Head& head, int32_t rank, cache::HeadPlan& plan) const {
    const double factor = Factor(head, rank);
    if (factor == 0) return;
    const std::span<const Slot> order = head.call.order(head.kv_head);
    const auto first = static_cast<size_t>(rank) + 1;
    const size_t last = std::min(order.size(), first + static_cast<size_t>(c_.reach));
    for (size_t next = first; next < last; ++next) {
      plan.merges.push_back({.into = order[next], .n_sources = 2});
      plan.sources.push_back({.row = order[next], .key_weight = 1, .value_weight = 1});
      plan.sources.push_back(
          {.row = order[first - 1], .key_weight = 0, .value_weight = static_cast<float>(factor)});
    }
  }

  // When an entry is evicted, everything newer is still there: its value goes to the next `reach`
  // ranks, and is passed on by those that are evicted later. Working backwards from the newest
  // evicted entry finds where each value ends.
  void SpreadAll(const Head& head, std::span<const int32_t> evicted, cache::HeadPlan& plan) const {
    const std::span<const Slot> order = head.call.order(head.kv_head);
    std::vector<int32_t> number(order.size(), -1);  // [rank]: index among the evicted; -1: stays
    for (size_t i = 0; i < evicted.size(); ++i) {
      number[static_cast<size_t>(evicted[i])] = static_cast<int32_t>(i);
    }
    // The oldest is evicted first, so it draws first.
    std::vector<double> factors(evicted.size());
    for (size_t i = 0; i < evicted.size(); ++i) factors[i] = Factor(head, evicted[i]);

    std::vector<std::vector<Arrival>> arrivals(evicted.size());  // ranks ascending
    std::vector<double> sums(order.size());
    std::vector<Arrival> all;
    for (size_t i = evicted.size(); i-- > 0;) {
      if (factors[i] == 0) continue;
      const auto first = static_cast<size_t>(evicted[i]) + 1;
      const size_t last = std::min(order.size(), first + static_cast<size_t>(c_.reach));
      size_t end = last;
      for (size_t rank = first; rank < last; ++rank) {
        if (number[rank] < 0) {
          sums[rank] += factors[i];
          continue;
        }
        for (const Arrival& arrival : arrivals[static_cast<size_t>(number[rank])]) {
          sums[arrival.rank] += factors[i] * arrival.weight;
          end = std::max(end, arrival.rank + 1);
        }
      }
      for (size_t rank = first; rank < end; ++rank) {
        if (sums[rank] == 0) continue;
        arrivals[i].push_back({.rank = rank, .from = order[first - 1], .weight = sums[rank]});
        sums[rank] = 0;
      }
      all.insert(all.end(), arrivals[i].begin(), arrivals[i].end());
    }
    std::stable_sort(all.begin(), all.end(),
                     [](const Arrival& a, const Arrival& b) { return a.rank < b.rank; });
    for (size_t begin = 0; begin < all.size();) {
      const Slot into = order[all[begin].rank];
      plan.merges.push_back({.into = into, .n_sources = 1});
      plan.sources.push_back({.row = into, .key_weight = 1, .value_weight = 1});
      for (const size_t rank = all[begin].rank; begin < all.size() && all[begin].rank == rank;
           ++begin) {
        ++plan.merges.back().n_sources;
        plan.sources.push_back({.row = all[begin].from,
                                .key_weight = 0,
                                .value_weight = static_cast<float>(all[begin].weight)});
      }
    }
  }

  SpreadConfig c_;
};

}  // namespace

MergerPtr Spread(const SpreadConfig& config) { return std::make_shared<SpreadMerger>(config); }

}  // namespace winnow::compression::merge
