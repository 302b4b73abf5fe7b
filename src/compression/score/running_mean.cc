#include <algorithm>
#include <vector>

#include "compression/score/pool.h"
#include "compression/score/score.h"

namespace winnow::compression::score {
namespace {

// Columns. The number of queries that saw an entry follows from its age, so that a step writes only
// sums.
constexpr int kSum = 0;
constexpr int kUnseen = 1;  // queries before the first that saw the entry
// Layer number.
constexpr int kQueries = 0;  // so far

class RunningMeanScorer final : public Scorer {
 public:
  explicit RunningMeanScorer(const RunningMeanConfig& config) : c_(config) {}

  std::string_view name() const override { return "running_mean"; }
  bool independent_of_region() const override { return true; }
  Needs needs() const override {
    const kernels::TapSpec sums = {.column_sums = true, .reduce = TapReduceFrom(c_.reduce)};
    const kernels::TapSpec window = {.last_rows = c_.prompt_queries,
                                     .reduce = TapReduceFrom(c_.reduce)};
    return {.prefill = c_.prompt_queries > 0 ? window : sums,
            .decode = {.last_rows = 1, .reduce = TapReduceFrom(c_.reduce)},
            .state = {.n_columns = 2, .n_layer_numbers = 1}};
  }
  void Observe(const LayerCall& call) const override {
    double& n_queries = call.layer_number(kQueries);
    const int64_t n_counted = Counted(call);
    for (int head = 0; head < call.n_kv_heads(); ++head) {
      if (call.taps->column_sums.empty()) {
        AddRows(call, head, n_counted);
      } else {
        AddSums(call, head);
      }
      // An entry of the call is seen by its own query and those after it.
      const std::span<double> unseen = call.column(head, kUnseen);
      const std::span<const Slot> own = call.order(head).last(static_cast<size_t>(call.n_new));
      for (int64_t i = 0; i < call.n_new; ++i) {
        unseen[static_cast<size_t>(own[static_cast<size_t>(i)])] =
            n_queries + static_cast<double>(std::max<int64_t>(0, i - (call.n_new - n_counted)));
      }
    }
    n_queries += static_cast<double>(n_counted);
  }
  void Score(const LayerCall& call, int kv_head, Region region,
             std::span<double> out) const override {
    const std::span<const double> sums = call.column(kv_head, kSum);
    const std::span<const double> unseen = call.column(kv_head, kUnseen);
    const double n_queries = call.layer_number(kQueries);
    const std::span<const Slot> order = call.order(kv_head);
    const bool mean = c_.criterion != Criterion::kAccumulated;
    for (size_t i = 0; i < out.size(); ++i) {
      const auto slot = static_cast<size_t>(order[static_cast<size_t>(region.begin) + i]);
      out[i] = mean ? sums[slot] / (n_queries - unseen[slot]) : sums[slot];
    }
  }

 private:
  using Criterion = RunningMeanConfig::Criterion;

  // How many queries of the call count; they are the last ones.
  int64_t Counted(const LayerCall& call) const {
    if (call.phase == Phase::kDecode || c_.prompt_queries == 0) return call.n_new;
    return std::min<int64_t>(call.taps->n_last_rows,
                             BlockUnder(call.budget, c_.prompt_sinks, c_.prompt_queries));
  }

  void AddRows(const LayerCall& call, int head, int64_t n_rows) const {
    const std::span<double> sums = call.column(head, kSum);
    const int64_t n_slots = call.n_slots(head);
    for (int64_t row = call.taps->n_last_rows - n_rows; row < call.taps->n_last_rows; ++row) {
      const std::span<const float> weights = call.last_row(head, static_cast<int>(row));
      const auto n_seen = static_cast<double>(n_slots - call.taps->n_last_rows + row + 1);
      const double factor = c_.criterion == Criterion::kPosition ? n_seen : 1;
      for (size_t slot = 0; slot < sums.size(); ++slot) sums[slot] += factor * weights[slot];
    }
  }

  void AddSums(const LayerCall& call, int head) const {
    const std::span<double> sums = call.column(head, kSum);
    const std::vector<double>& added = call.taps->column_sums[static_cast<size_t>(head)];
    if (c_.criterion != Criterion::kPosition) {
      for (size_t slot = 0; slot < sums.size(); ++slot) sums[slot] += added[slot];
      return;
    }
    const std::span<const Slot> order = call.order(head);
    const auto n_slots = static_cast<int64_t>(order.size());
    for (int64_t rank = 0; rank < n_slots; ++rank) {
      const auto slot = static_cast<size_t>(order[static_cast<size_t>(rank)]);
      const int64_t fewest_seen = std::max(n_slots - call.n_new, rank) + 1;
      sums[slot] += added[slot] * static_cast<double>(fewest_seen + n_slots) / 2;
    }
  }

  RunningMeanConfig c_;
};

}  // namespace

ScorerPtr RunningMean(const RunningMeanConfig& config) {
  return std::make_shared<RunningMeanScorer>(config);
}

}  // namespace winnow::compression::score
