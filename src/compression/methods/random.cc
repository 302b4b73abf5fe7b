// Random eviction (ours): the control that a method must beat to be worth its taps. An entry's
// score is drawn once, from seed, layer, head and position alone, so that nothing else decides what
// is kept.
#include <algorithm>

#include "base/rng.h"
#include "compression/methods/methods.h"
#include "compression/methods/score_alone.h"

namespace winnow::compression::methods {
namespace {

struct RandomConfig {
  ScoreAloneConfig entries = {.sinks = 4, .recent = 16};  // [ours; sinks as in streaming]
  int seed = 1;                                           // [ours]
};

template <class Visitor>
void Visit(RandomConfig& c, Visitor& v) {
  Visit(c.entries, v);
  v("seed", c.seed, "seed of the random choice", Range{0, 1 << 30});
}

class Draw final : public Scorer {
 public:
  explicit Draw(int seed) : seed_(static_cast<uint64_t>(seed)) {}

  std::string_view name() const override { return "random"; }
  void Score(const LayerCall& call, int kv_head, Region region,
             std::span<double> out) const override {
    const auto head = static_cast<uint64_t>(call.layer * call.n_kv_heads() + kv_head);
    const uint64_t of_head = Rng(seed_ << 32 | head).Next();
    const std::span<const Slot> order = call.order(kv_head);
    const std::span<const Position> positions = call.cache.positions(call.layer, kv_head);
    for (size_t i = 0; i < out.size(); ++i) {
      const Slot slot = order[static_cast<size_t>(region.begin) + i];
      const auto position = static_cast<uint64_t>(positions[static_cast<size_t>(slot)]);
      out[i] = Rng(of_head ^ position).Uniform();
    }
  }

 private:
  uint64_t seed_;
};

Result<MethodPtr> Make(const RandomConfig& c) {
  return ScoreAlone(c.entries, std::make_shared<Draw>(c.seed));
}

Promise Promises(const RandomConfig& c, int64_t budget) { return Promises(c.entries, budget); }

}  // namespace

MethodEntry Random() {
  return Entry<RandomConfig, Make, Promises>("random", "random eviction: the control", "winnow");
}

}  // namespace winnow::compression::methods
