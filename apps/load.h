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

// What a command computes with, as its flags say.
namespace winnow::apps {

struct LoadedModel {
  Model model;
  std::unique_ptr<PlanTrace> trace;  // null unless wanted; Finish it
  Session session;
};
// Opens model and session, and tells the log in two lines what they are. Requires: Validate(flags).
Result<LoadedModel> LoadModel(const ModelFlags& flags, Log& log);

// The same for commands that work on the rooms below the public API.
struct Loaded {
  std::optional<Model> model;  // keeps the engine
  runtime::Engine* engine = nullptr;
  std::unique_ptr<PlanTrace> trace;  // null unless wanted; Finish it
  std::unique_ptr<runtime::Session> session;
};
Result<Loaded> Load(const ModelFlags& flags, Log& log);

// Closes the trace, if there is one. Error: the disk.
Result<void> FinishTrace(PlanTrace* trace);
inline Result<void> FinishTrace(Loaded& loaded) { return FinishTrace(loaded.trace.get()); }
inline Result<void> FinishTrace(LoadedModel& loaded) { return FinishTrace(loaded.trace.get()); }

// "llama 1.24 B Q4_K_M": architecture, parameters, and the file's own label of its quantisation.
std::string DescribeEngine(const runtime::Engine& engine);

}  // namespace winnow::apps
