// Twilight (arXiv:2502.02770): evicts nothing; every query head attends only to the smallest set of
// entries that holds a share `p` of its attention.
// Implements Method rather than combining parts: it selects inside attention, in every step and for
// every query head. Candidates are all entries, with exact weights.
#include <algorithm>

#include "compression/methods/methods.h"

namespace winnow::compression::methods {
namespace {

struct TwilightConfig {
  double p = 0.9;        // share of the attention that is kept  [paper: 0.85 to 0.95]
  int dense_layers = 2;  // first layers with full attention  [authors' code]
};

template <class Visitor>
void Visit(TwilightConfig& c, Visitor& v) {
  v("p", c.p, "share of the attention that is kept", Range{0.01, 1});
  v("dense_layers", c.dense_layers, "first layers attended in full", Range{0, 1 << 20});
}

class TwilightMethod final : public Method {
 public:
  explicit TwilightMethod(const TwilightConfig& c)
      : traits_({.attention = {.top_p = static_cast<float>(c.p), .dense_layers = c.dense_layers},
                 .decisions = {.prefill = DecisionPolicy::Prefill::kNever},
                 .budget = {.needed = false, .held = false}}) {}

  const Traits& traits() const override { return traits_; }
  Needs needs() const override { return {}; }
  void Decide(const LayerCall&, PlanList&) const override {}

 private:
  Traits traits_;
};

Result<MethodPtr> Make(const TwilightConfig& c) {
  return MethodPtr(std::make_shared<TwilightMethod>(c));
}

Promise Promises(const TwilightConfig&, int64_t) { return {.exact = true}; }

}  // namespace

MethodEntry Twilight() {
  return Entry<TwilightConfig, Make, Promises>("twilight",
                                               "the smallest set that holds most of the attention",
                                               "Twilight, arXiv:2502.02770");
}

}  // namespace winnow::compression::methods
