#include <algorithm>
#include <vector>

#include "compression/score/pool.h"
#include "compression/score/score.h"

namespace winnow::compression::score {
namespace {

class LastRowScorer final : public Scorer {
 public:
  explicit LastRowScorer(const LastRowConfig& config) : c_(config) {}

  std::string_view name() const override { return "last"; }
  Needs needs() const override {
    const kernels::TapSpec rows = {.last_rows = c_.queries, .reduce = TapReduceFrom(c_.reduce)};
    const kernels::TapSpec row = {.last_rows = 1, .reduce = TapReduceFrom(c_.reduce)};
    return {.prefill = rows, .decode = row, .state = {}};
  }
  bool one_score_per_layer() const override { return c_.per_layer; }

  // Groups are equally large, so the mean over them is the mean over all query heads.
  void Score(const LayerCall& call, int kv_head, Region region,
             std::span<double> out) const override {
    std::fill(out.begin(), out.end(), 0.0);
    int n_voters = 0;
    const int n_rows = std::min(call.taps->n_last_rows, c_.queries);
    for (int head = 0; head < call.n_kv_heads(); ++head) {
      // Heads of other lengths (budgets per head) hold other entries: they do not vote.
      const bool votes = c_.per_layer && call.n_slots(head) == call.n_slots(kv_head);
      if (!votes && head != kv_head) continue;
      ++n_voters;
      const std::span<const Slot> order = call.order(head);
      for (int row = call.taps->n_last_rows - n_rows; row < call.taps->n_last_rows; ++row) {
        const std::span<const float> weights = call.last_row(head, row);
        for (size_t i = 0; i < out.size(); ++i) {
          out[i] += weights[static_cast<size_t>(order[static_cast<size_t>(region.begin) + i])];
        }
      }
    }
    const int64_t n_slots = call.n_slots(kv_head);
    for (size_t i = 0; i < out.size(); ++i) {
      const int64_t n_not_older = n_slots - region.begin - static_cast<int64_t>(i);
      out[i] /= static_cast<double>(n_voters * std::min<int64_t>(n_rows, n_not_older));
    }
  }

 private:
  LastRowConfig c_;
};

}  // namespace

ScorerPtr LastRow(const LastRowConfig& config) { return std::make_shared<LastRowScorer>(config); }

}  // namespace winnow::compression::score
