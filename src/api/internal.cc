#include "api/internal.h"

#include <utility>

#include "api/impl.h"

namespace winnow::internal {

runtime::Engine& Access::EngineFrom(const Model& model) { return *model.impl_->engine; }
std::unique_ptr<runtime::Session> Access::Release(Session session) {
  return std::move(session.impl_->session);
}
void Access::SetOnPlan(
    const Model& model,
    std::function<void(const cache::Plan& plan, const runtime::PlanContext& context)> on_plan) {
  model.impl_->on_plan = std::move(on_plan);
}

}  // namespace winnow::internal
