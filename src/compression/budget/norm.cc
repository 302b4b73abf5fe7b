#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "compression/budget/budget.h"
#include "compression/numbers.h"

namespace winnow::compression::budget {
namespace {

// Squares of one query head's attention: of the mean over its last rows, or summed over all rows.
struct Squares {
  std::vector<double> rest;  // [r]: over the ranked entries from the r-th on, which keeping r loses
  double first = 0;          // over the protected entries
};

class NormBudgeter final : public Budgeter {
 public:
  explicit NormBudgeter(const NormConfig& config) : c_(config) {}

  std::string_view name() const override { return "norm"; }
  Needs needs() const override {
    // Norms are computed per query head, before any mean.
    constexpr auto kHeads = kernels::TapSpec::Reduce::kNone;
    if (c_.metric == NormConfig::Metric::kMatrix) {
      return {.prefill = {.square_sums = true, .reduce = kHeads}};
    }
    return {.prefill = {.last_sums = c_.queries, .reduce = kHeads},
            .last_sums_share = c_.queries_share};
  }
  bool needs_budget() const override { return false; }
  bool reads_scores() const override { return true; }
  void Sizes(const BudgetInput& in, std::span<int64_t> out) const override {
    const LayerCall& call = in.call;
    // Decode does not change the sizes: the taps of its steps, if any, belong to other parts.
    if (call.phase == Phase::kDecode || call.layer < c_.whole_layers ||
        (call.taps->last_sums.empty() && call.taps->square_sums.empty())) {
      for (size_t head = 0; head < out.size(); ++head) out[head] = RegionSize(in, head);
    } else if (c_.per_head) {
      for (size_t head = 0; head < out.size(); ++head) {
        const auto kv_head = static_cast<int>(head);
        out[head] = Shortest(in, kv_head, kv_head + 1);
      }
    } else {
      std::fill(out.begin(), out.end(), Shortest(in, 0, call.n_kv_heads()));
    }
    if (call.budget == 0) return;
    for (int64_t& size : out) {
      size = std::min(size, std::max<int64_t>(0, call.budget - in.n_protected));
    }
  }
  int64_t MaxSlots(int64_t budget, int64_t n, int64_t) const override {
    return budget > 0 ? std::min(budget, n) : n;
  }
  int64_t TotalSlots(int64_t budget, int64_t n, int64_t n_protected, int n_layers) const override {
    return MaxSlots(budget, n, n_protected) * n_layers;
  }
  int64_t LayerSlots(int, int, int64_t budget, int64_t n, int64_t n_protected) const override {
    return MaxSlots(budget, n, n_protected);
  }

 private:
  static int64_t RegionSize(const BudgetInput& in, size_t kv_head) {
    return static_cast<int64_t>(in.scores[kv_head].size());
  }

  // The smallest number of best-scored entries for which the mean norm over the query heads of the
  // KV heads [begin, end) is within the threshold.
  int64_t Shortest(const BudgetInput& in, int begin, int end) const {
    const int group = in.call.group();
    int64_t longest = 0;
    for (int kv_head = begin; kv_head < end; ++kv_head) {
      longest = std::max(longest, RegionSize(in, static_cast<size_t>(kv_head)));
    }
    if (longest <= 1) return longest;
    const auto n = static_cast<size_t>(longest);
    std::vector<double> lost(n + 1, 0.0);  // [r] sum over heads of N(n) - N(r)
    double whole = 0;
    for (int kv_head = begin; kv_head < end; ++kv_head) {
      const std::vector<int32_t> ranking = Ranking(in.scores[static_cast<size_t>(kv_head)]);
      for (int head = kv_head * group; head < (kv_head + 1) * group; ++head) {
        const Squares squares = SumSquares(in, kv_head, head, ranking);
        const double first = c_.include_first ? squares.first : 0;
        const double total = first + squares.rest[0];
        whole += std::sqrt(total);
        for (size_t r = 1; r < squares.rest.size(); ++r) {
          // N(n) - N(r) without cancellation: exactly zero only if nothing is left out.
          const double rest = squares.rest[r];
          if (rest > 0) lost[r] += rest / (std::sqrt(total) + std::sqrt(total - rest));
        }
      }
    }
    if (!(whole > 0 && std::isfinite(whole))) return longest;  // the norm is zero or not finite
    size_t r = 1;
    while (lost[r] > c_.threshold * whole) ++r;
    return static_cast<int64_t>(r);
  }

  static std::vector<int32_t> Ranking(const std::vector<double>& scores) {
    std::vector<int32_t> ranking(scores.size());
    std::iota(ranking.begin(), ranking.end(), 0);
    std::sort(ranking.begin(), ranking.end(), BestFirst{scores});
    return ranking;
  }

  Squares SumSquares(const BudgetInput& in, int kv_head, int q_head,
                     const std::vector<int32_t>& ranking) const {
    const LayerCall& call = in.call;
    const std::span<const Slot> order = call.order(kv_head);
    const auto n_slots = static_cast<int64_t>(order.size());
    const auto head = static_cast<size_t>(q_head);
    const bool matrix = c_.metric == NormConfig::Metric::kMatrix;
    const std::vector<double>& sums =
        matrix ? call.taps->square_sums[head] : call.taps->last_sums[head];
    const auto square = [&](int64_t rank) {
      const double sum = sums[static_cast<size_t>(order[static_cast<size_t>(rank)])];
      if (matrix) return sum;
      const int64_t n_seeing = std::min<int64_t>(call.taps->n_last_sums, n_slots - rank);
      const double mean = sum / static_cast<double>(n_seeing);
      return mean * mean;
    };
    Squares squares;
    squares.rest.assign(ranking.size() + 1, 0.0);
    for (size_t r = ranking.size(); r-- > 0;) {
      squares.rest[r] = squares.rest[r + 1] + square(in.region.begin + ranking[r]);
    }
    // The protected entries at either end are kept for every length.
    const int64_t end = in.region.begin + static_cast<int64_t>(ranking.size());
    for (int64_t rank = 0; rank < in.region.begin; ++rank) squares.first += square(rank);
    for (int64_t rank = end; rank < n_slots; ++rank) squares.first += square(rank);
    return squares;
  }

  NormConfig c_;
};

}  // namespace

BudgeterPtr Norm(const NormConfig& config) { return std::make_shared<NormBudgeter>(config); }

}  // namespace winnow::compression::budget
