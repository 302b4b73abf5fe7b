#include "runtime/scheduler/scheduler_job.h"

#include <exception>
#include <utility>

namespace winnow::runtime {

Job::~Job() {
  if (!is_queued) return;
  claim.Release();
  try {
    const RequestError error = {ErrorKind::kInternal, "the request could not be finished"};
    const Event failed = {.kind = Event::Kind::kFailed, .error = error};
    End(&error, {&failed, 1});
  } catch (const std::exception&) {  // not even memory for the message
  }
}

void Job::Notify(const Event& event) {
  using Kind = Event::Kind;
  const bool is_last = event.kind == Kind::kFinished || event.kind == Kind::kFailed;
  if (receiver_failed && !is_last) return;
  try {
    if (request.on_event) request.on_event(event);
  } catch (const std::exception&) {
    receiver_failed = true;
    ticket->cancelled.store(true, std::memory_order_relaxed);
  }
}

void Job::End(const RequestError* error, std::span<const Event> last) {
  is_queued = false;
  for (const Event& event : last) Notify(event);
  try {
    if (on_end) on_end(error);
  } catch (const std::exception&) {  // nobody is left to be told
  }
}

}  // namespace winnow::runtime
