#include <algorithm>
#include <functional>
#include <vector>

#include "compression/score/score.h"

namespace winnow::compression::score {
namespace {

class KeyDifferenceScorer final : public Scorer {
 public:
  std::string_view name() const override { return "key_difference"; }
  void Score(const LayerCall& call, int kv_head, Region region,
             std::span<double> out) const override {
    const HeadScores head = {.kv_head = kv_head, .region = region, .out = out};
    ScoreHeads(call, {&head, 1});
  }
  // Every stored key is read: heads side by side.
  void ScoreHeads(const LayerCall& call, std::span<const HeadScores> heads) const override {
    std::vector<double>& cosines = call.scratch.numbers;  // [head][rank]
    const auto n_slots = [&](const HeadScores& head) { return call.order(head.kv_head).size(); };
    size_t longest = 0;
    for (const HeadScores& head : heads) longest = std::max(longest, n_slots(head));
    cosines.resize(heads.size() * longest);
    call.backend.ForEach(static_cast<int64_t>(heads.size()), [&](int64_t i) {
      const HeadScores& head = heads[static_cast<size_t>(i)];
      const auto own = std::span(cosines).subspan(static_cast<size_t>(i) * longest, n_slots(head));
      call.backend.CompareWithMean(
          {call.cache.keys(call.layer, head.kv_head), call.order(head.kv_head), own});
      const auto read = own.subspan(static_cast<size_t>(head.region.begin), head.out.size());
      std::ranges::transform(read, head.out.begin(), std::negate());
    });
  }
};

}  // namespace

ScorerPtr KeyDifference() { return std::make_shared<KeyDifferenceScorer>(); }

}  // namespace winnow::compression::score
