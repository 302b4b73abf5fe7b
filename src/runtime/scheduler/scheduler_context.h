#pragma once

#include <exception>
#include <functional>
#include <optional>
#include <string>

#include "base/log.h"
#include "runtime/scheduler/scheduler_types.h"
#include "runtime/store/session_names.h"
#include "runtime/store/session_store.h"

namespace winnow::runtime {

// Called when work has ended; null: without an error.
using Then = std::function<void(const RequestError* error)>;
// Runs `task` on the I/O thread, then `then` on the loop's.
using QueueFileTask = std::function<void(SessionStore::FileTask task, Then then)>;

// What all parts of the scheduler's thread use. What it refers to outlives them.
struct SchedulerContext {
  const SchedulerOptions& options;
  SessionNames& names;
  Log& log;
  const Clock& clock;
  QueueFileTask queue_file_task;
};

// Without its text if memory for that is refused.
RequestError Copy(const RequestError& error) noexcept;

// Logs what was thrown. `name`: of `what`, such as a session, or empty.
RequestError LogThrown(Log& log, const char* what, const std::string& name,
                       const std::exception& problem) noexcept;
// The error of what `work` throws, which is logged.
template <class Work>
std::optional<RequestError> Try(Log& log, const char* what, const std::string& name,
                                const Work& work) {
  try {
    work();
    return std::nullopt;
  } catch (const std::exception& problem) {
    return LogThrown(log, what, name, problem);
  }
}

}  // namespace winnow::runtime
