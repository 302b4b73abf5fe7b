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

// A handle to a submitted request. Thread-safe; dropping it does not cancel the request.
class Ticket {
 public:
  // Takes effect within a row block; the request ends with kFinished/kCancelled.
  void Cancel();
  uint64_t id() const;

 private:
  friend class Scheduler;
  explicit Ticket(std::shared_ptr<TicketData> data) : data_(std::move(data)) {}
  std::shared_ptr<TicketData> data_;
};

// Serves many requests on one engine: continuous batching, admission by reserved bytes, one prompt
// in prefill at a time between decode steps, no preemption. (docs/decisions/0012-scheduler.md)
//
// A request's bytes are known before it starts, and it starts when they are free: the model, the
// buffers, the reservations of all sequences and the extra bytes of one prefill together stay
// within the limit.
class Scheduler {
 public:
  // The engine, the log and the clock must outlive the scheduler, and nothing else may compute with
  // the engine meanwhile. Without a clock, the system's is used. Errors: an option out of range, a
  // memory limit below the bytes of model and buffers (both numbers), a session folder that cannot
  // be opened.
  static Result<std::unique_ptr<Scheduler>> Make(Engine& engine, const SchedulerOptions& options,
                                                 Log& log, const Clock* clock = nullptr);
  ~Scheduler();  // Stop
  Scheduler(const Scheduler&) = delete;
  Scheduler& operator=(const Scheduler&) = delete;

  // Starts the thread that runs rounds until Stop. Tests call Round instead.
  void Start();
  bool Round();  // one round; false: there was nothing to do
  // Refuses new requests and finishes those submitted. If there is a folder, saves named sessions:
  // idle ones at once, others when their requests end. Returns when all is done. Must not be called
  // on the scheduler's thread.
  void Drain();
  // Ends the thread. Unfinished requests fail with kUnavailable; sessions are not saved. Must not
  // be called on the scheduler's thread.
  void Stop();

  // --- thread-safe from here on ---

  // Errors, before anything is queued: kInvalid, kTooLarge, kQueueFull, kUnavailable, kNotFound,
  // kBusy. on_event is then never called.
  std::variant<Ticket, RequestError> Submit(Request request);
  // As of the last round. Never waits for the engine.
  SchedulerState state() const;

  // Named sessions. Each call runs on the scheduler's thread between rounds, and `done` is called
  // there, or at once in the caller's thread when the scheduler has stopped. Names are 1 to 128 of
  // A-Z a-z 0-9 . _ -, not starting with a dot (kInvalid).
  using SessionOutcome = std::variant<SessionInfo, RequestError>;
  using SessionDone = std::function<void(SessionOutcome outcome)>;

  // Prefills `document` (max_tokens is taken as 0) and keeps it as session `id`.
  // `document.on_event`, if set, sees its prefill. Errors: kBusy if the name is taken; those of
  // Submit.
  void CreateSession(const std::string& id, Request document, const SessionDone& done);
  // Copies session `from` to the new name `to`. Errors: kNotFound; kBusy if `from` is in use or
  // `to` is taken; kTooLarge or kQueueFull if there is no memory for the copy.
  void ForkSession(const std::string& from, const std::string& to, const SessionDone& done);
  // To and from the file `name` in session_path. A restored session replaces one of the same id
  // only once the whole file was read without error. Errors: kInvalid without a folder; kBusy if
  // the same state is already being saved to that file; kQueueFull if max_waiting files are waiting
  // to be read or written.
  void SaveSession(const std::string& id, const std::string& name, const SessionDone& done);
  void RestoreSession(const std::string& id, const std::string& name, const SessionDone& done);
  // Deletes a session from memory, and the file of the same name.
  void DeleteSession(const std::string& id, const SessionDone& done);
  void ListSessions(const std::function<void(std::vector<SessionInfo> sessions)>& done);
  // kNotFound: neither in memory nor saved.
  void FindSession(const std::string& id, const SessionDone& done);
  // The tokens of a session, also while it is in use. Of a session that is only on disk, only the
  // text is read; it stays on disk.
  void ReadTokens(
      const std::string& id,
      const std::function<void(std::variant<SessionTokens, RequestError> tokens)>& done);
  // The positions that a session keeps, also while it is in use. kBusy while its prompt is being
  // read, unless the request works on a copy. Loads a saved session.
  void KeptPositions(const std::string& id, bool by_head,
                     const std::function<void(std::variant<KeptTokens, RequestError> kept)>& done);

 private:
  struct Data;
  explicit Scheduler(std::unique_ptr<Data> data);
  std::unique_ptr<Data> data_;
};

}  // namespace winnow::runtime
