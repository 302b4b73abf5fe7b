#include <algorithm>
#include <numeric>
#include <vector>

#include "compression/numbers.h"
#include "compression/score/pool.h"
#include "compression/select/select.h"
#include "compression/select/worst.h"

namespace winnow::compression::select {
namespace {

// Columns: sums over the queries that saw the entry. Those queries are counted from its birth: a
// step then writes sums only.
constexpr int kSum = 0;
constexpr int kSquares = 1;
constexpr int kUnseen = 2;  // queries before the first that saw the entry
// Layer number.
constexpr int kQueries = 0;  // so far

class GateSelector final : public Selector {
 public:
  explicit GateSelector(const GateConfig& config) : c_(config) {}

  std::string_view name() const override { return "gate"; }
  cache::StateShape state() const override { return {.n_columns = 3, .n_layer_numbers = 1}; }
  Needs needs() const override {
    const kernels::TapSpec taps = {
        .column_sums = true, .square_sums = true, .reduce = score::TapReduceFrom(c_.reduce)};
    return {.prefill = taps, .decode = taps, .state = state()};
  }
  void Observe(const LayerCall& call) const override {
    double& n_queries = call.layer_number(kQueries);
    for (int head = 0; head < call.n_kv_heads(); ++head) {
      const auto at = static_cast<size_t>(head);
      const std::span<double> sum = call.column(head, kSum);
      const std::span<double> squares = call.column(head, kSquares);
      const std::span<double> unseen = call.column(head, kUnseen);
      const std::span<const double> added = call.taps.column_sums[at];
      const std::span<const double> added_squares = call.taps.square_sums[at];
      for (size_t slot = 0; slot < sum.size(); ++slot) {
        sum[slot] += added[slot];
        squares[slot] += added_squares[slot];
      }
      // An entry of the call is seen by its own query and those after it.
      const std::span<const Slot> own = call.order(head).last(static_cast<size_t>(call.n_new));
      for (size_t i = 0; i < own.size(); ++i) {
        unseen[static_cast<size_t>(own[i])] = n_queries + static_cast<double>(i);
      }
    }
    n_queries += static_cast<double>(call.n_new);
  }

  void Evict(const SelectInput& in, std::vector<int32_t>& evicted) const override {
    const LayerCall& call = in.call;
    const int64_t n_candidates = std::min(Candidates(call, in.region), in.region.size());
    const int64_t n_evict = in.region.size() - in.n_keep;
    if (n_evict <= 0) return;

    const WorstFirst worse = {in.scores};
    if (n_evict == 1) {
      const int32_t rank = WorstCandidate(in, n_candidates, worse);
      if (rank >= 0) {
        evicted.push_back(rank + static_cast<int32_t>(in.region.begin));
        return;
      }
    }
    std::vector<double>& variances = call.scratch.numbers;
    std::vector<int32_t>& steadiest = call.scratch.indices;
    const Variances variance_of(call, in.kv_head, in.region);
    variances.resize(static_cast<size_t>(in.region.size()));
    for (size_t i = 0; i < variances.size(); ++i) variances[i] = variance_of(i);
    steadiest.resize(variances.size());
    std::iota(steadiest.begin(), steadiest.end(), 0);
    const WorstFirst steadier = {variances};
    const auto candidates_end = steadiest.begin() + n_candidates;
    if (n_evict == 1) {
      std::nth_element(steadiest.begin(), candidates_end - 1, steadiest.end(), steadier);
      evicted.push_back(*std::min_element(steadiest.begin(), candidates_end, worse));
    } else {
      // One after another: whoever goes makes room for the next steadiest among the candidates.
      std::sort(steadiest.begin(), steadiest.end(), steadier);
      const BestFirst better = {in.scores};
      auto end = candidates_end;  // of a heap, the worst candidate first
      auto next = candidates_end;
      std::make_heap(steadiest.begin(), end, better);
      for (int64_t i = 0; i < n_evict; ++i) {
        evicted.push_back(steadiest.front());
        std::pop_heap(steadiest.begin(), end, better);
        if (next != steadiest.end()) {
          *(end - 1) = *next++;
          std::push_heap(steadiest.begin(), end, better);
        } else {
          --end;
        }
      }
      std::sort(evicted.begin(), evicted.end());
    }
    for (int32_t& rank : evicted) rank += static_cast<int32_t>(in.region.begin);
  }

 private:
  // Entries that may go: those with the smallest variance, so many. A variance that is NaN is the
  // smallest of all.
  int64_t Candidates(const LayerCall& call, Region region) const {
    const double ratio = call.phase == Phase::kPrefill ? c_.prefill_ratio : c_.ratio;
    const int64_t exempt = CountFrom(ratio * static_cast<double>(call.budget), call.budget);
    return std::max<int64_t>(1, call.budget - exempt - region.begin);
  }

  // Of the entries of a region, counted from its first. In the order of the deviations of which the
  // paper speaks, without their square roots.
  class Variances {
   public:
    Variances(const LayerCall& call, int kv_head, Region region)
        : sum_(call.column(kv_head, kSum)),
          squares_(call.column(kv_head, kSquares)),
          unseen_(call.column(kv_head, kUnseen)),
          n_queries_(call.layer_number(kQueries)),
          order_(call.order(kv_head).subspan(static_cast<size_t>(region.begin),
                                             static_cast<size_t>(region.size()))) {}
    double operator()(size_t i) const {
      const auto slot = static_cast<size_t>(order_[i]);
      const double share = 1 / (n_queries_ - unseen_[slot]);
      const double mean = sum_[slot] * share;
      const double variance = squares_[slot] * share - mean * mean;
      return variance < 0 ? 0 : variance;
    }

   private:
    std::span<const double> sum_, squares_, unseen_;
    double n_queries_;
    std::span<const Slot> order_;
  };

  // The worst of the candidates, counted from the region's first entry: nearly always one of the
  // few worst of all, whose place among the steadiest is found without sorting, and mostly without
  // reading all variances. -1: none of the few is a candidate.
  static int32_t WorstCandidate(const SelectInput& in, int64_t n_candidates,
                                const WorstFirst& worse) {
    constexpr int kTries = 4;
    const auto n = static_cast<int32_t>(in.scores.size());
    const Variances variance_of(in.call, in.kv_head, in.region);
    auto worst = static_cast<int32_t>(OldestWorst(in.scores));
    for (int tried = 0; tried < kTries; ++tried) {
      // A candidate: fewer than n_candidates are steadier.
      const double own = variance_of(static_cast<size_t>(worst));
      int64_t n_steadier = 0;
      int64_t n_left = n;
      for (int32_t i = 0; i < n && n_steadier < n_candidates && n_steadier + n_left >= n_candidates;
           ++i, --n_left) {
        const double other = variance_of(static_cast<size_t>(i));
        if (ScoreLess(other, own) || (!ScoreLess(own, other) && i < worst)) ++n_steadier;
      }
      if (n_steadier < n_candidates) return worst;
      int32_t next = -1;
      for (int32_t i = 0; i < n; ++i) {
        if (worse(worst, i) && (next < 0 || worse(i, next))) next = i;
      }
      worst = next;
    }
    return -1;
  }

  GateConfig c_;
};

}  // namespace

SelectorPtr Gate(const GateConfig& config) { return std::make_shared<GateSelector>(config); }

}  // namespace winnow::compression::select
