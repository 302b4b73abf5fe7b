// The full cache: evicts nothing. Implements Method rather than combining parts: there is nothing
// to score. All other methods are compared with it.
#include <algorithm>

#include "compression/methods/methods.h"

namespace winnow::compression::methods {
namespace {

struct FullConfig {};

template <class Visitor>
void Visit(FullConfig&, Visitor&) {}

class FullCache final : public Method {
 public:
  const Traits& traits() const override { return traits_; }
  Needs needs() const override { return {}; }
  void Decide(const LayerCall&, PlanList&) const override {}

 private:
  Traits traits_ = {.decisions = {.prefill = DecisionPolicy::Prefill::kNever},
                    .budget = {.needed = false, .held = false}};
};

Result<MethodPtr> Make(const FullConfig&) { return MethodPtr(std::make_shared<FullCache>()); }

Promise Promises(const FullConfig&, int64_t) { return {.exact = true}; }

}  // namespace

MethodEntry Full() {
  return Entry<FullConfig, Make, Promises>("full", "evicts nothing", "the full cache");
}

}  // namespace winnow::compression::methods
