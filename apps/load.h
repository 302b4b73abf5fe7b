#pragma once

#include <memory>
#include <optional>
#include <string>

#include "base/log.h"
#include "base/result.h"
#include "options.h"
#include "plan_trace.h"
#include "runtime/engine.h"
#include "runtime/session/session.h"
#include "winnow/model.h"
#include "winnow/session.h"

// Opens the model and session that a command's flags describe.
namespace winnow::apps {

struct LoadedModel {
  Model model;
  std::unique_ptr<PlanTrace> trace;  // null without --trace; end it with FinishTrace
  Session session;
};
// Opens model and session and describes them in two lines of the log. Requires: Validate(flags).
Result<LoadedModel> LoadModel(const ModelFlags& flags, Log& log);

// The same for commands that use the rooms below the public API.
struct Loaded {
  std::optional<Model> model;  // keeps the engine alive
  runtime::Engine* engine = nullptr;
  std::unique_ptr<PlanTrace> trace;  // null without --trace; end it with FinishTrace
  std::unique_ptr<runtime::Session> session;
};
Result<Loaded> Load(const ModelFlags& flags, Log& log);

// Completes the trace file, if there is one. Error: it cannot be written.
Result<void> FinishTrace(PlanTrace* trace);
inline Result<void> FinishTrace(Loaded& loaded) { return FinishTrace(loaded.trace.get()); }
inline Result<void> FinishTrace(LoadedModel& loaded) { return FinishTrace(loaded.trace.get()); }

// "llama 1.24 B Q4_K_M": architecture, parameters, and the file's label of its quantization.
std::string DescribeEngine(const runtime::Engine& engine);

}  // namespace winnow::apps
