#include "runtime/scheduler/scheduler_context.h"

namespace winnow::runtime {

RequestError Copy(const RequestError& error) noexcept {
  try {
    return error;
  } catch (const std::exception&) {
    return {error.kind};
  }
}

RequestError LogThrown(Log& log, const char* what, const std::string& name,
                       const std::exception& problem) noexcept {
  try {
    RequestError error = {ErrorKind::kInternal,
                          what + (name.empty() ? "" : " " + name) + ": " + problem.what()};
    log.Error(error.message);
    return error;
  } catch (const std::exception&) {  // no memory even for the message
    return {ErrorKind::kInternal};
  }
}

}  // namespace winnow::runtime
