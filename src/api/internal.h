#pragma once

#include <functional>
#include <memory>

#include "cache/plan.h"
#include "runtime/budget/compressor.h"
#include "runtime/engine.h"
#include "runtime/session/session.h"
#include "winnow/model.h"
#include "winnow/session.h"

namespace winnow::internal {

// Access to the objects behind the public handles, for commands that use the rooms below the API.
struct Access {
  // The engine lives as long as the model's handles and sessions.
  static runtime::Engine& EngineFrom(const Model& model);
  // Moves the session out of its handle; it borrows the model's engine.
  static std::unique_ptr<runtime::Session> Release(Session session);
  // `on_plan` gets every plan of sessions that are made or restored from now on.
  static void SetOnPlan(
      const Model& model,
      std::function<void(const cache::Plan& plan, const runtime::PlanContext& context)> on_plan);
};

}  // namespace winnow::internal
