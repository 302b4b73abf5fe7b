// Evenly spaced tokens: the strided pattern of Sparse Transformers (arXiv:1904.10509, section 4.2),
// a baseline in the H2O paper. The authors' stride is fixed; here it is the power of two that fits
// the budget, and doubles as the text grows.
#include <bit>
#include <cstdint>
#include <memory>

#include "compression/methods/methods.h"
#include "compression/methods/score_alone.h"

namespace winnow::compression::methods {
namespace {

struct StridedConfig {
  ScoreAloneConfig entries = {.sinks = 4, .recent = CountOrShare::Share(0.5)};  // [ours]
};

template <class Visitor>
void Visit(StridedConfig& c, Visitor& v) {
  Visit(c.entries, v);
}

// Scores by the largest power of two that divides an entry's position.
class Stride final : public Scorer {
 public:
  std::string_view name() const override { return "strided"; }
  void Score(const LayerCall& call, int kv_head, Region region,
             std::span<double> out) const override {
    const std::span<const Slot> order = call.order(kv_head);
    const std::span<const Position> positions = call.cache.positions(call.layer, kv_head);
    for (size_t i = 0; i < out.size(); ++i) {
      const Slot slot = order[static_cast<size_t>(region.begin) + i];
      out[i] = std::countr_zero(static_cast<uint64_t>(positions[static_cast<size_t>(slot)]));
    }
  }
};

Result<MethodPtr> Make(const StridedConfig& c) {
  return ScoreAlone(c.entries, std::make_shared<Stride>());
}

Promise Promises(const StridedConfig& c, int64_t budget) { return Promises(c.entries, budget); }

}  // namespace

MethodEntry Strided() {
  return Entry<StridedConfig, Make, Promises>("strided", "evenly spaced tokens, and the newest",
                                              "Sparse Transformers, arXiv:1904.10509");
}

}  // namespace winnow::compression::methods
