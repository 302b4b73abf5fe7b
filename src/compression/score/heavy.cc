#include "compression/score/pool.h"
#include "compression/score/score.h"

namespace winnow::compression::score {
namespace {

class HeavyScorer final : public Scorer {
 public:
  explicit HeavyScorer(Reduce reduce) : reduce_(TapReduceFrom(reduce)) {}

  std::string_view name() const override { return "heavy"; }
  Needs needs() const override {
    const kernels::TapSpec sums = {.column_sums = true, .reduce = reduce_};
    return {.prefill = sums, .decode = sums, .state = {.n_columns = 1}};
  }
  void Observe(const LayerCall& call) const override {
    for (int head = 0; head < call.n_kv_heads(); ++head) ObserveHeavy(call, head);
  }
  void Score(const LayerCall& call, int kv_head, Region region,
             std::span<double> out) const override {
    const std::span<const double> sums = call.column(kv_head, 0);
    const std::span<const Slot> order = call.order(kv_head);
    for (size_t i = 0; i < out.size(); ++i) {
      out[i] = sums[static_cast<size_t>(order[static_cast<size_t>(region.begin) + i])];
    }
  }

 private:
  kernels::TapSpec::Reduce reduce_;
};

}  // namespace

void ObserveHeavy(const LayerCall& call, int kv_head) {
  const std::span<double> sums = call.column(kv_head, 0);
  const std::vector<double>& added = call.taps->column_sums[static_cast<size_t>(kv_head)];
  for (size_t slot = 0; slot < sums.size(); ++slot) sums[slot] += added[slot];
}

ScorerPtr Heavy(Reduce reduce) { return std::make_shared<HeavyScorer>(reduce); }

}  // namespace winnow::compression::score
