#include <algorithm>
#include <vector>

#include "compression/score/score.h"

namespace winnow::compression::score {
namespace {

class LastMeanScorer final : public Scorer {
 public:
  explicit LastMeanScorer(const LastMeanConfig& config) : c_(config) {}

  std::string_view name() const override { return "last_mean"; }
  Needs needs() const override {
    return {.prefill = {.last_sums = c_.queries}, .last_sums_share = c_.queries_share};
  }
  bool one_score_per_layer() const override { return c_.per_layer; }

  // Groups are equally large, so the mean over them is the mean over all query heads.
  void Score(const LayerCall& call, int kv_head, Region region,
             std::span<double> out) const override {
    std::fill(out.begin(), out.end(), 0.0);
    const int64_t n_slots = call.n_slots(kv_head);
    int n_voters = 0;
    for (int head = 0; head < call.n_kv_heads(); ++head) {
      // Heads of other lengths hold other entries: they do not vote.
      const bool votes = c_.per_layer && call.n_slots(head) == n_slots;
      if (!votes && head != kv_head) continue;
      ++n_voters;
      const std::span<const Slot> order = call.order(head);
      const std::vector<double>& sums = call.taps->last_sums[static_cast<size_t>(head)];
      for (size_t i = 0; i < out.size(); ++i) {
        out[i] += sums[static_cast<size_t>(order[static_cast<size_t>(region.begin) + i])];
      }
    }
    for (size_t i = 0; i < out.size(); ++i) {
      const int64_t n_not_older = n_slots - region.begin - static_cast<int64_t>(i);
      const int64_t n_seeing = std::min<int64_t>(call.taps->n_last_sums, n_not_older);
      out[i] /= static_cast<double>(n_voters * n_seeing);
    }
  }

 private:
  LastMeanConfig c_;
};

}  // namespace

ScorerPtr LastMean(const LastMeanConfig& config) {
  return std::make_shared<LastMeanScorer>(config);
}

}  // namespace winnow::compression::score
