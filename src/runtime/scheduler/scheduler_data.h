#pragma once

#include <functional>
#include <memory>
#include <mutex>
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

  // A command for the loop; `stopped` is called instead where there is none any more.
  void Post(std::function<void()> command, std::function<void()> stopped);
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
  // A claim for a request that continues `name`.
  std::optional<RequestError> ClaimExisting(const std::string& name);
  std::optional<RequestError> ClaimNew(const std::string& name);
  // Of a name that a request gives to what it makes; `existed`: there was one.
  std::optional<RequestError> ClaimToReplace(const std::string& name, bool& existed);
  std::optional<RequestError> CheckQueue();
  // Saves and restores wait too, not more than requests. On the loop's thread.
  std::optional<RequestError> CheckFileQueue() const;
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
  struct Command {
    std::function<void()> run;
    std::function<void()> stopped;
  };
  std::vector<Command> commands;

  mutable std::mutex state_mutex;
  SchedulerState state;

  std::thread thread;
};

}  // namespace winnow::runtime
