#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "compression/numbers.h"
#include "compression/score/pool.h"
#include "compression/select/select.h"

namespace winnow::compression::select {
namespace {

// Columns: sums over the queries that saw the entry.
constexpr int kSum = 0;
constexpr int kSquares = 1;
constexpr int kCount = 2;

class GateSelector final : public Selector {
 public:
  explicit GateSelector(const GateConfig& config) : c_(config) {}

  std::string_view name() const override { return "gate"; }
  cache::StateShape state() const override { return {.n_columns = 3}; }
  Needs needs() const override {
    const kernels::TapSpec taps = {
        .column_sums = true, .square_sums = true, .reduce = score::TapReduceFrom(c_.reduce)};
    return {.prefill = taps, .decode = taps, .state = state()};
  }
  void Observe(const LayerCall& call) const override {
    for (int head = 0; head < call.n_kv_heads(); ++head) {
      const auto at = static_cast<size_t>(head);
      const std::span<double> sum = call.column(head, kSum);
      const std::span<double> squares = call.column(head, kSquares);
      const std::span<double> count = call.column(head, kCount);
      const std::span<const Slot> order = call.order(head);
      for (size_t rank = 0; rank < order.size(); ++rank) {
        const auto slot = static_cast<size_t>(order[rank]);
        sum[slot] += call.taps.column_sums[at][slot];
        squares[slot] += call.taps.square_sums[at][slot];
        // Entries of the call were seen by their own query and those after it.
        count[slot] +=
            static_cast<double>(std::min(call.n_new, static_cast<int64_t>(order.size() - rank)));
      }
    }
  }

  void Evict(const SelectInput& in, std::vector<int32_t>& evicted) const override {
    const LayerCall& call = in.call;
    const int64_t n_candidates = std::min(Candidates(call, in.region), in.region.size());
    const int64_t n_evict = in.region.size() - in.n_keep;
    if (n_evict <= 0) return;

    std::vector<double>& deviations = call.scratch.numbers;
    std::vector<int32_t>& steadiest = call.scratch.indices;
    Deviations(call, in.kv_head, in.region, deviations);
    steadiest.resize(deviations.size());
    std::iota(steadiest.begin(), steadiest.end(), 0);
    const WorstFirst steadier = {deviations};
    const WorstFirst worse = {in.scores};
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
  // Entries that may go: those with the smallest deviation, so many. A deviation that is NaN is the
  // smallest of all.
  int64_t Candidates(const LayerCall& call, Region region) const {
    const double ratio = call.phase == Phase::kPrefill ? c_.prefill_ratio : c_.ratio;
    const int64_t exempt = CountFrom(ratio * static_cast<double>(call.budget), call.budget);
    return std::max<int64_t>(1, call.budget - exempt - region.begin);
  }

  static void Deviations(const LayerCall& call, int kv_head, Region region,
                         std::vector<double>& out) {
    const std::span<const double> sum = call.column(kv_head, kSum);
    const std::span<const double> squares = call.column(kv_head, kSquares);
    const std::span<const double> count = call.column(kv_head, kCount);
    const std::span<const Slot> order = call.order(kv_head);
    out.resize(static_cast<size_t>(region.size()));
    for (size_t i = 0; i < out.size(); ++i) {
      const auto slot = static_cast<size_t>(order[static_cast<size_t>(region.begin) + i]);
      const double mean = sum[slot] / count[slot];
      const double variance = squares[slot] / count[slot] - mean * mean;
      out[i] = variance < 0 ? 0 : std::sqrt(variance);
    }
  }

  GateConfig c_;
};

}  // namespace

SelectorPtr Gate(const GateConfig& config) { return std::make_shared<GateSelector>(config); }

}  // namespace winnow::compression::select
