#pragma once

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

// The state shared between threads: requests and commands go in under one mutex, the published
// state comes out under another. Everything else belongs to the loop's thread.
struct Scheduler::Data {
  Data(Engine& engine_, const SchedulerOptions& options_, std::unique_ptr<SessionFolder> folder_,
       Log& log_, const Clock* clock_);

  // Work for the loop's thread. `stopped` runs instead of `run` once the scheduler has stopped;
  // `failed`, if set, runs after `run` threw an exception.
  struct Command {
    std::function<void()> run;
    std::function<void()> stopped;
    std::function<void(const RequestError& error)> failed = {};
  };
  void Post(Command command);
  // Posts a command whose caller waits for the outcome; `fail` tells the caller why it was not run.
  void PostCall(std::function<void()> call,
                const std::function<void(const RequestError& error)>& fail);
  // Runs `work`; an exception, mostly std::bad_alloc, becomes an error.
  template <class Work>
  std::optional<RequestError> Guard(const Work& work) {
    return Try(log, "internal error", "", work);
  }
  void RunCommand(const Command& command);
  // Scheduler::ListSessions, one command for each part of the scan.
  void List(const std::shared_ptr<SessionStore::FolderScan>& scan,
            const std::function<void(std::vector<SessionInfo> sessions)>& done);
  // Runs commands of `to_run` for at most a part of the gap between tokens (kCommandShare); the
  // others come first in the next round.
  void RunCommands();
  // Runs `task` on the I/O thread, then `then` on the loop's. Call on the loop's thread.
  void AddFileWork(SessionStore::FileTask task, Then then);
  // Whether no request and no file work is left.
  bool idle() const { return loop.idle() && loop.n_file_work() == 0; }
  // Takes over new requests and runs commands. True: there were any.
  bool TakeIncoming();
  void PublishState();
  bool Round();
  void FailAll(const RequestError& error);
  void Run();
  // Fails the requests and commands that are left.
  void Close();

  std::variant<std::shared_ptr<Job>, RequestError> Check(Request request);
  // Claim a name; the error says why that is not possible. ClaimExisting: for a session that
  // exists; ClaimNew: for one that does not.
  std::optional<RequestError> ClaimExisting(const std::string& name, SessionClaim& claim) const;
  std::optional<RequestError> ClaimNew(const std::string& name, SessionClaim& claim) const;
  // For a request that replaces the session of this name, if there is one.
  std::optional<RequestError> ClaimToReplace(const std::string& name, SessionClaim& claim) const;
  // Of a session in memory; what that throws is the outcome.
  SessionOutcome Describe(const std::string& id);
  std::optional<RequestError> CheckQueue();
  std::optional<RequestError> CheckDraining();
  // Error: draining, or max_waiting files are already waiting to be read or written. Call on the
  // loop's thread.
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
  FileQueue files;  // destroyed before the sessions that it writes

  const std::shared_ptr<WakeSignal> signal = std::make_shared<WakeSignal>();
  std::mutex& mutex = signal->mutex;  // guards the members down to `commands`
  bool draining = false;
  bool stopping = false;
  bool stopped = false;
  int n_queued = 0;  // waiting requests, including `incoming`
  uint64_t next_id = 1;
  std::vector<std::shared_ptr<Job>> incoming;
  std::list<Command> commands;

  std::list<Command> to_run;  // taken from `commands` by the loop, not run yet

  mutable std::mutex state_mutex;
  SchedulerState state;

  std::thread thread;
};

}  // namespace winnow::runtime
