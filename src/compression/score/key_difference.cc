#include <algorithm>
#include <vector>

#include "compression/score/score.h"

namespace winnow::compression::score {
namespace {

class KeyDifferenceScorer final : public Scorer {
 public:
  std::string_view name() const override { return "key_difference"; }
  void Score(const LayerCall& call, int kv_head, Region region,
             std::span<double> out) const override {
    std::vector<double>& cosines = call.scratch.numbers;
    const std::span<const Slot> order = call.order(kv_head);
    cosines.resize(order.size());
    call.backend.CompareWithMean({call.cache.keys(call.layer, kv_head), order, cosines});
    std::transform(cosines.begin() + region.begin, cosines.begin() + region.end, out.begin(),
                   [](double cosine) { return -cosine; });
  }
};

}  // namespace

ScorerPtr KeyDifference() { return std::make_shared<KeyDifferenceScorer>(); }

}  // namespace winnow::compression::score
