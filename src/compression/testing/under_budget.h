#pragma once

#include <cstdint>
#include <utility>

#include "compression/method.h"

namespace winnow::compression::testing {

// A method whose budget changes, as in a conversation under a memory limit, or with --kv-ratio from
// turn to turn.
class UnderBudget final : public Method {
 public:
  UnderBudget(MethodPtr method, int64_t first) : budget(first), method_(std::move(method)) {}
  const Traits& traits() const override { return method_->traits(); }
  Needs needs() const override { return method_->needs(); }
  void Decide(const LayerCall& call, PlanList& plans) const override {
    LayerCall own = call;
    own.budget = budget;
    method_->Decide(own, plans);
  }

  int64_t budget = 0;

 private:
  MethodPtr method_;
};

}  // namespace winnow::compression::testing
