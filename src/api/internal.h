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

// What is behind the handles of the public API, for commands that need the rooms below it.
struct Access {
  // The engine lives as long as the model's handles and sessions.
  static runtime::Engine& EngineFrom(const Model& model);
  // Takes it out of its handle; borrows the model's engine.
  static std::unique_ptr<runtime::Session> Release(Session session);
  // Gets every decision of the method of sessions that are made or restored from now on.
  static void SetOnPlan(
      const Model& model,
      std::function<void(const cache::Plan& plan, const runtime::PlanContext& context)> on_plan);
};

}  // namespace winnow::internal
