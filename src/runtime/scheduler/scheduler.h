#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/log.h"
#include "base/result.h"
#include "runtime/engine.h"
#include "runtime/scheduler/scheduler_types.h"

namespace winnow::runtime {

struct TicketData;

// A handle to what was submitted. Thread-safe; dropping it cancels nothing.
class Ticket {
 public:
  void Cancel();  // seen within a row block; ends with kFinished/kCancelled
  uint64_t id() const;

 private:
  friend class Scheduler;
  explicit Ticket(std::shared_ptr<TicketData> data) : data_(std::move(data)) {}
  std::shared_ptr<TicketData> data_;
};

// Serves many requests on one engine: continuous batching, admission by reserved bytes, one prompt
// in prefill at a time between decode steps, no preemption. (docs/decisions/0012-scheduler.md)
//
// The bytes of a request are known before it starts, and it starts when they are free: the model,
// the buffers, what all sequences reserve and what one prefill takes on top stay within the limit.
class Scheduler {
 public:
  // The engine, the log and the clock outlive the scheduler; nothing else computes with the engine
  // meanwhile. No clock: the system's. Errors: an option out of range, a memory limit below the
  // model's own bytes (both numbers), a session folder that cannot be opened.
  static Result<std::unique_ptr<Scheduler>> Make(Engine& engine, const SchedulerOptions& options,
                                                 Log& log, const Clock* clock = nullptr);
  ~Scheduler();  // Stop
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  // One thread that runs rounds until Stop. Without it, tests call Round.
  void Start();
  bool Round();  // one round; false: there was nothing to do
  // No new requests; those there are end. Named sessions are saved, where there is a folder: idle
  // ones at once, others when their work ends. Returns when all is done. Not on the scheduler's
  // thread.
  void Drain();
  // Ends the thread. Requests that are left fail with kUnavailable; sessions are not saved. Not on
  // the scheduler's thread.
  void Stop();

  // --- thread-safe from here on ---

  // Errors, before anything is queued: kInvalid, kTooLarge, kQueueFull, kUnavailable, kNotFound,
  // kBusy. on_event is then never called.
  std::variant<Ticket, RequestError> Submit(Request request);
  // As of the last round. Never waits for the engine.
  SchedulerState state() const;

  // Named sessions. Each call runs on the scheduler's thread between rounds, and `done` is called
  // there, or at once in the caller's thread when the scheduler has stopped. Names are 1 to 128 of
  // A-Z a-z 0-9 . _ -, the first no dot (kInvalid).
  using SessionOutcome = std::variant<SessionInfo, RequestError>;
  using SessionDone = std::function<void(SessionOutcome outcome)>;

  // Reads a document once; max_tokens is taken as 0. `document.on_event`, where
  // given, sees its prefill. Errors: kBusy where the name is taken; those of Submit.
  void CreateSession(const std::string& id, Request document, const SessionDone& done);
  void ForkSession(const std::string& from, const std::string& to, const SessionDone& done);
  // To and from the file `name` below session_path. A restored session replaces one of the same id
  // only when all of the file was right. Errors: kInvalid without a folder; kBusy where the same is
  // being saved there already; kQueueFull where max_waiting files are to be read or written.
  void SaveSession(const std::string& id, const std::string& name, const SessionDone& done);
  void RestoreSession(const std::string& id, const std::string& name, const SessionDone& done);
  // From memory, and its file of the same name.
  void DeleteSession(const std::string& id, const SessionDone& done);
  void ListSessions(const std::function<void(std::vector<SessionInfo> sessions)>& done);
  // kNotFound: neither in memory nor saved.
  void FindSession(const std::string& id, const SessionDone& done);
  // What a session has read so far, also one in use. One that is saved stays where it is.
  void ReadTokens(
      const std::string& id,
      const std::function<void(std::variant<SessionTokens, RequestError> tokens)>& done);
  // Also of a session in use.
  void KeptPositions(const std::string& id, bool by_head,
                     const std::function<void(std::variant<KeptTokens, RequestError> kept)>& done);

 private:
  struct Data;
  explicit Scheduler(std::unique_ptr<Data> data);
  std::unique_ptr<Data> data_;
};

}  // namespace winnow::runtime
