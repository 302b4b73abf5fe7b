#pragma once

#include <exception>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "runtime/scheduler/scheduler.h"
#include "runtime/scheduler/scheduler_loop.h"
#include "runtime/store/file_queue.h"
#include "runtime/store/session_folder.h"
#include "runtime/store/session_names.h"

namespace winnow::runtime {

class SystemClock final : public Clock {
 public:
  TimePoint now() const override { return std::chrono::steady_clock::now(); }
};

inline RequestError ShuttingDown() {
  return {ErrorKind::kUnavailable, "the server is shutting down"};
}

// What crosses threads: requests and commands go in under a mutex, the state comes out under
// another. Everything else is the loop's.
struct Scheduler::Data {
  Data(Engine& engine_, const SchedulerOptions& options_, std::unique_ptr<SessionFolder> folder_,
       Log& log_, const Clock* clock_);

  // For the loop's thread. `stopped` is called instead where there is no loop any more, `failed`
  // after an exception, if it is there.
  struct Command {
    std::function<void()> run;
    std::function<void()> stopped;
    std::function<void(const RequestError& error)> failed = {};
  };
  void Post(Command command);
  // A command that somebody waits for; `fail` tells him why it is not done.
  void PostCall(std::function<void()> call,
                const std::function<void(const RequestError& error)>& fail);
  // The error of what was thrown. A template, as std::function may throw before it is called.
  template <class Work>
  std::optional<RequestError> Guard(const Work& work) {
    try {
      work();
      return std::nullopt;
    } catch (const std::exception& problem) {  // memory, mostly
      return LogThrown(problem);
    }
  }
  RequestError LogThrown(const std::exception& problem) noexcept;
  void RunCommand(const Command& command);
  // As many of `to_run` as a part of the gap between tokens allows, one at least.
  void RunCommands();
  // `task` on the I/O thread, then `then` on the loop's. On the loop's thread.
  void AddFileWork(SessionStore::FileTask task, SchedulerLoop::Then then);
  // Whether nothing runs or is to be done.
  bool idle() const { return loop.idle() && loop.n_file_work() == 0; }
  // Takes over what came in. True: there was something.
  bool TakeIncoming();
  void PublishState();
  bool Round();
  void Run();
  // Fails what is left.
  void Close();

  std::variant<std::shared_ptr<Job>, RequestError> Check(Request request);
  // For a request that continues `name`.
  std::optional<RequestError> ClaimExisting(const std::string& name, SessionClaim& claim) const;
  std::optional<RequestError> ClaimNew(const std::string& name, SessionClaim& claim) const;
  // For a request that makes a session of this name, whether or not there is one.
  std::optional<RequestError> ClaimToReplace(const std::string& name, SessionClaim& claim) const;
  std::optional<RequestError> CheckQueue();
  std::optional<RequestError> CheckDraining();
  // Work on files waits too, not more of it than of requests, and none begins while draining. On
  // the loop's thread.
  std::optional<RequestError> CheckFileQueue();
  std::variant<Ticket, RequestError> Enqueue(std::shared_ptr<Job> job);

  Engine& engine;
  const SchedulerOptions options;
  const std::unique_ptr<SessionFolder> folder;
  Log& log;
  const SystemClock system_clock;
  const Clock& clock;
  SessionNames names;
  SchedulerLoop loop;
  FileQueue files;  // ends before the sessions that it writes

  const std::shared_ptr<Signal> signal = std::make_shared<Signal>();
  std::mutex& mutex = signal->mutex;  // of what follows
  bool draining = false;
  bool stopping = false;
  bool stopped = false;
  int n_queued = 0;  // requests that wait, with those that just came in
  uint64_t next_id = 1;
  std::vector<std::shared_ptr<Job>> incoming;
  std::list<Command> commands;

  std::list<Command> to_run;  // the loop's: commands that it has taken

  mutable std::mutex state_mutex;
  SchedulerState state;

  std::thread thread;
};

}  // namespace winnow::runtime
