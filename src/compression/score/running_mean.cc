#include <algorithm>
#include <vector>

#include "compression/score/pool.h"
#include "compression/score/score.h"

namespace winnow::compression::score {
namespace {

// Columns. Queries that saw an entry are counted from its birth: a step then writes sums only.
constexpr int kSum = 0;
constexpr int kUnseen = 1;  // queries before the first that saw the entry
// Layer number.
constexpr int kQueries = 0;  // so far

class RunningMeanScorer final : public Scorer {
 public:
  explicit RunningMeanScorer(const RunningMeanConfig& config) : c_(config) {}

  std::string_view name() const override { return "running_mean"; }
  bool of_entry_alone() const override { return true; }
  Needs needs() const override {
    const kernels::TapSpec sums = {.column_sums = true, .reduce = TapReduceOf(c_.reduce)};
    const kernels::TapSpec window = {.last_rows = c_.prompt_queries,
                                     .reduce = TapReduceOf(c_.reduce)};
    return {.prefill = c_.prompt_queries > 0 ? window : sums,
            .decode = {.last_rows = 1, .reduce = TapReduceOf(c_.reduce)},
            .state = {.n_columns = 2, .n_layer_numbers = 1}};
  }
  void Observe(const LayerCall& call) const override {
    const bool window = call.phase == Phase::kPrefill && c_.prompt_queries > 0;
    double& n_queries = call.layer_number(kQueries);
    for (int head = 0; head < call.n_kv_heads(); ++head) {
      if (window) {
        StartFromWindow(call, head, n_queries);
      } else {
        Add(call, head, n_queries);
      }
    }
    if (!window) n_queries += static_cast<double>(call.n_new);
  }
  void Score(const LayerCall& call, int kv_head, Region region,
             std::span<double> out) const override {
    const std::span<const double> sums = call.column(kv_head, kSum);
    const std::span<const double> unseen = call.column(kv_head, kUnseen);
    const double n_queries = call.layer_number(kQueries);
    const std::span<const Slot> order = call.order(kv_head);
    for (size_t i = 0; i < out.size(); ++i) {
      const auto slot = static_cast<size_t>(order[static_cast<size_t>(region.begin) + i]);
      out[i] = sums[slot] / (n_queries - unseen[slot]);
    }
  }

 private:
  static void Add(const LayerCall& call, int head, double n_before) {
    const std::span<double> sums = call.column(head, kSum);
    if (call.taps.column_sums.empty()) {  // a decode step
      const std::span<const float> added = call.last_row(head, call.taps.n_last_rows - 1);
      for (size_t slot = 0; slot < sums.size(); ++slot) sums[slot] += added[slot];
    } else {
      const std::vector<double>& added = call.taps.column_sums[static_cast<size_t>(head)];
      for (size_t slot = 0; slot < sums.size(); ++slot) sums[slot] += added[slot];
    }
    // Entries of the call were seen by their own query and those after it.
    const std::span<double> unseen = call.column(head, kUnseen);
    for (const Slot slot : call.order(head).last(static_cast<size_t>(call.n_new))) {
      unseen[static_cast<size_t>(slot)] = n_before++;
    }
  }

  void StartFromWindow(const LayerCall& call, int head, double n_queries) const {
    const std::span<double> sums = call.column(head, kSum);
    const std::span<double> unseen = call.column(head, kUnseen);
    const std::span<const Slot> order = call.order(head);
    const auto n_slots = static_cast<int64_t>(order.size());
    const int64_t n_rows = std::min(call.taps.n_last_rows, c_.prompt_queries);
    std::fill(sums.begin(), sums.end(), 0.0);
    for (int64_t row = call.taps.n_last_rows - n_rows; row < call.taps.n_last_rows; ++row) {
      const std::span<const float> weights = call.last_row(head, static_cast<int>(row));
      for (size_t slot = 0; slot < sums.size(); ++slot) sums[slot] += weights[slot];
    }
    for (int64_t rank = 0; rank < n_slots; ++rank) {
      unseen[static_cast<size_t>(order[static_cast<size_t>(rank)])] =
          n_queries - static_cast<double>(std::min(n_rows, n_slots - rank));
    }
  }

  RunningMeanConfig c_;
};

}  // namespace

ScorerPtr RunningMean(const RunningMeanConfig& config) {
  return std::make_shared<RunningMeanScorer>(config);
}

}  // namespace winnow::compression::score
