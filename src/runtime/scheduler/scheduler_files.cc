#include "runtime/scheduler/scheduler_files.h"

namespace winnow::runtime {

void QueueWrite(const QueueFileTask& file_work, SessionStore& store,
                const SessionStore::Saving& saving, bool evicts) {
  const auto end = [&store, evicts](const SessionStore::Saving& ended, const RequestError* error) {
    evicts ? store.EndEvict(ended, error) : store.EndSave(ended, error == nullptr);
  };
  try {
    file_work(saving.write, [saving, end](const RequestError* error) { end(saving, error); });
  } catch (const std::exception&) {  // the store counts it as begun
    const RequestError error = {ErrorKind::kInternal};
    end(saving, &error);
    throw;
  }
}

RequestError LogThrown(Log& log, const char* what, const std::string& name,
                       const std::exception& problem) noexcept {
  try {
    RequestError error = {ErrorKind::kInternal,
                          std::string(what) + " " + name + ": " + problem.what()};
    log.Error(error.message);
    return error;
  } catch (const std::exception&) {  // no memory even for the message
    return {ErrorKind::kInternal};
  }
}

}  // namespace winnow::runtime
