#include <algorithm>
#include <array>
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
  // Reads every stored key: heads share the threads.
  bool shares_threads() const override { return true; }
  void ScoreHeads(const LayerCall& call, std::span<const HeadScores> heads) const override {
    const auto n_slots = [&](const HeadScores& head) { return call.order(head.kv_head).size(); };
    size_t n = 0;
    for (const HeadScores& head : heads) n += n_slots(head);
    std::vector<double>& cosines = call.scratch.numbers;  // [head][rank]
    cosines.resize(n);
    std::array<kernels::MeanCosines, kMaxHeads> comparisons;
    auto next = cosines.begin();
    for (size_t i = 0; i < heads.size(); ++i) {
      const int kv_head = heads[i].kv_head;
      const std::span<double> own(next, n_slots(heads[i]));
      comparisons[i] = {call.cache.keys(call.layer, kv_head), call.order(kv_head), own};
      next += std::ssize(own);
    }
    call.backend.CosinesToMean(std::span(comparisons).first(heads.size()));
    for (size_t i = 0; i < heads.size(); ++i) {
      const auto first = static_cast<size_t>(heads[i].region.begin);
      const auto read = comparisons[i].cosines.subspan(first, heads[i].out.size());
      std::ranges::transform(read, heads[i].out.begin(), std::negate());
    }
  }
};

}  // namespace

ScorerPtr KeyDifference() { return std::make_shared<KeyDifferenceScorer>(); }

}  // namespace winnow::compression::score
