#include <cmath>

#include "compression/score/score.h"
#include "compression/score/stored_keys.h"

namespace winnow::compression::score {
namespace {

class KeyNormScorer final : public Scorer {
 public:
  std::string_view name() const override { return "key_norm"; }
  Needs needs() const override {
    return {.prefill = {}, .decode = {}, .state = {.n_float_columns = 1}};
  }
  // A key is read once, when it is new, so the cost of a step does not grow with the cache.
  void Observe(const LayerCall& call) const override {
    for (int head = 0; head < call.n_kv_heads(); ++head) {
      const std::span<float> norms = call.float_column(head, 0);
      const std::span<const Slot> order = call.order(head);
      const int64_t n_slots = call.n_slots(head);
      ForEachKey(call, head, n_slots - call.n_new, n_slots,
                 [&](int64_t rank, std::span<const float> key) {
                   norms[static_cast<size_t>(order[static_cast<size_t>(rank)])] =
                       static_cast<float>(std::sqrt(SquareNorm(key)));
                 });
    }
  }
  void Score(const LayerCall& call, int kv_head, Region region,
             std::span<double> out) const override {
    const std::span<const float> norms = call.float_column(kv_head, 0);
    const std::span<const Slot> order = call.order(kv_head);
    for (size_t i = 0; i < out.size(); ++i) {
      out[i] = -norms[static_cast<size_t>(order[static_cast<size_t>(region.begin) + i])];
    }
  }
};

}  // namespace

ScorerPtr KeyNorm() { return std::make_shared<KeyNormScorer>(); }

}  // namespace winnow::compression::score
