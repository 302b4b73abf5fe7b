#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "compression/numbers.h"
#include "compression/score/pool.h"
#include "compression/select/select.h"
#include "compression/select/worst.h"

namespace winnow::compression::select {
namespace {

// Columns: sums over the queries that saw the entry. The number of these queries follows from the
// entry's age, so that a step writes only sums.
constexpr int kSquares = 0;
constexpr int kUnseen = 1;  // queries before the first that saw the entry
constexpr int kSum = 2;     // absent if the scores are means
// Layer number.
constexpr int kQueries = 0;  // so far

class GateSelector final : public Selector {
 public:
  explicit GateSelector(const GateConfig& config) : c_(config) {}

  std::string_view name() const override { return "gate"; }
  cache::StateShape state() const override {
    return {.n_columns = c_.scores_are_means ? 2 : 3, .n_layer_numbers = 1};
  }
  Needs needs() const override {
    const kernels::TapSpec::Reduce reduce = score::TapReduceFrom(c_.reduce);
    return {.prefill = {.column_sums = true, .square_sums = true, .reduce = reduce},
            .decode = {.last_rows = 1, .reduce = reduce},
            .state = state()};
  }
  void Observe(const LayerCall& call) const override {
    double& n_queries = call.layer_number(kQueries);
    for (int head = 0; head < call.n_kv_heads(); ++head) {
      if (call.phase == Phase::kDecode) {
        const std::span<const float> weights = call.last_row(head, 0);
        Add(call, head, weights, weights, [](float weight) { return double{weight} * weight; });
      } else {
        const auto at = static_cast<size_t>(head);
        Add(call, head, std::span<const double>(call.taps->column_sums[at]),
            std::span<const double>(call.taps->square_sums[at]), [](double sum) { return sum; });
      }
      // An entry of the call is seen by its own query and those after it: `i` queries of the call
      // precede them.
      const std::span<double> unseen = call.column(head, kUnseen);
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
    std::vector<int32_t>& by_variance = call.scratch.indices;
    const Variances variance_of(in, c_.scores_are_means);
    variances.resize(static_cast<size_t>(in.region.size()));
    for (size_t i = 0; i < variances.size(); ++i) variances[i] = variance_of(i);
    by_variance.resize(variances.size());
    std::iota(by_variance.begin(), by_variance.end(), 0);
    const WorstFirst steadier = {variances};
    const auto candidates_end = by_variance.begin() + n_candidates;
    if (n_evict == 1) {
      std::nth_element(by_variance.begin(), candidates_end - 1, by_variance.end(), steadier);
      evicted.push_back(*std::min_element(by_variance.begin(), candidates_end, worse));
    } else {
      // One after another: each eviction makes room for the next by_variance entry among the
      // candidates.
      std::sort(by_variance.begin(), by_variance.end(), steadier);
      const BestFirst better = {in.scores};
      auto end = candidates_end;  // end of a heap with the worst candidate at the front
      auto next = candidates_end;
      std::make_heap(by_variance.begin(), end, better);
      for (int64_t i = 0; i < n_evict; ++i) {
        evicted.push_back(by_variance.front());
        std::pop_heap(by_variance.begin(), end, better);
        if (next != by_variance.end()) {
          *(end - 1) = *next++;
          std::push_heap(by_variance.begin(), end, better);
        } else {
          --end;
        }
      }
      std::sort(evicted.begin(), evicted.end());
    }
    for (int32_t& rank : evicted) rank += static_cast<int32_t>(in.region.begin);
  }

 private:
  // How many entries, those with the smallest variance, are candidates for eviction. A NaN variance
  // is the smallest of all.
  int64_t Candidates(const LayerCall& call, Region region) const {
    const double ratio = call.phase == Phase::kPrefill ? c_.prefill_ratio : c_.ratio;
    const int64_t exempt = CountFrom(ratio * static_cast<double>(call.budget), call.budget);
    return std::max<int64_t>(1, call.budget - exempt - region.begin);
  }

  // Adds the weights of the call's queries to the sums over all queries.
  template <class Number, class Square>
  void Add(const LayerCall& call, int head, std::span<const Number> weights,
           std::span<const Number> squares, const Square& square) const {
    const std::span<double> square_sum = call.column(head, kSquares);
    for (size_t slot = 0; slot < square_sum.size(); ++slot) {
      square_sum[slot] += square(squares[slot]);
    }
    if (c_.scores_are_means) return;
    const std::span<double> sum = call.column(head, kSum);
    for (size_t slot = 0; slot < sum.size(); ++slot) sum[slot] += weights[slot];
  }

  // Variances of the entries of a region, counted from its first. They order entries as the paper's
  // standard deviations do, without the square roots.
  class Variances {
   public:
    Variances(const SelectInput& in, bool scores_are_means)
        : squares_(in.call.column(in.kv_head, kSquares)),
          unseen_(in.call.column(in.kv_head, kUnseen)),
          n_queries_(in.call.layer_number(kQueries)),
          order_(in.call.order(in.kv_head)
                     .subspan(static_cast<size_t>(in.region.begin),
                              static_cast<size_t>(in.region.size()))) {
      if (scores_are_means) {
        means_ = in.scores;
      } else {
        sum_ = in.call.column(in.kv_head, kSum);
      }
    }
    double operator()(size_t i) const {
      const auto slot = static_cast<size_t>(order_[i]);
      const double share = 1 / (n_queries_ - unseen_[slot]);
      const double mean = means_.empty() ? sum_[slot] * share : means_[i];
      const double variance = squares_[slot] * share - mean * mean;
      return variance < 0 ? 0 : variance;
    }

   private:
    std::span<const double> sum_, squares_, unseen_;
    std::span<const double> means_;  // empty: means follow from sum_
    double n_queries_;
    std::span<const Slot> order_;
  };

  // The worst candidate, counted from the region's first entry. It is nearly always one of the few
  // worst entries, whose rank by variance is found without sorting, and mostly without reading all
  // variances. -1: none of these few is a candidate.
  int32_t WorstCandidate(const SelectInput& in, int64_t n_candidates,
                         const WorstFirst& worse) const {
    constexpr int kTries = 4;
    constexpr int32_t kBlock = 32;  // entries counted without a branch
    const auto n = static_cast<int32_t>(in.scores.size());
    const Variances variance_of(in, c_.scores_are_means);
    auto worst = static_cast<int32_t>(OldestWorst(in.scores));
    for (int tried = 0; tried < kTries; ++tried) {
      const double own = variance_of(static_cast<size_t>(worst));
      if (std::isnan(own)) return -1;
      // A candidate has fewer than n_candidates steadier entries: smaller variances, or equal ones
      // that are older.
      int64_t n_steadier = 0;
      for (int32_t first = 0; first < n; first += kBlock) {
        if (n_steadier >= n_candidates || n_steadier + n - first < n_candidates) break;
        const int32_t end = std::min(n, first + kBlock);
        for (int32_t i = first; i < std::min(end, worst); ++i) {
          n_steadier += !(variance_of(static_cast<size_t>(i)) > own) ? 1 : 0;
        }
        for (int32_t i = std::max(first, worst + 1); i < end; ++i) {
          n_steadier += !(variance_of(static_cast<size_t>(i)) >= own) ? 1 : 0;
        }
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
