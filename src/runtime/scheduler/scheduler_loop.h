#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <variant>
#include <vector>

#include "runtime/scheduler/scheduler.h"
#include "runtime/scheduler/scheduler_active.h"
#include "runtime/scheduler/scheduler_context.h"
#include "runtime/scheduler/scheduler_job.h"
#include "runtime/scheduler/scheduler_limit.h"
#include "runtime/scheduler/scheduler_pace.h"
#include "runtime/scheduler/scheduler_queue.h"
#include "runtime/scheduler/scheduler_sequence.h"
#include "runtime/scheduler/scheduler_sessions.h"
#include "runtime/session/batch.h"
#include "runtime/session/prefill.h"
#include "runtime/store/session_store.h"

namespace winnow::runtime {

// The scheduler's work on the engine, round by round. Not thread-safe. Requests come from
// Scheduler, which has checked them.
class SchedulerLoop {
 public:
  // What these refer to must outlive the loop. Without a folder, sessions live in memory only.
  SchedulerLoop(Engine& engine, SchedulerContext context, const SessionFolder* folder);
  ~SchedulerLoop();

  void Add(std::shared_ptr<Job> job) { waiting_.Add(std::move(job)); }
  // One decode step of all running sequences, then a part of the prompt in prefill. False: there
  // was nothing to do, or nothing until a file is read or written.
  bool Round();
  int n_file_work() const { return store_.n_file_work(); }  // running or queued
  bool idle() const { return waiting_.empty() && active_.empty(); }
  size_t n_waiting() const { return waiting_.size(); }
  SchedulerState state() const;
  // Bytes of the model and the buffers, which no request can have.
  int64_t fixed_bytes() const { return memory_.fixed_bytes(); }

  // Ends everything with an error.
  void FailAll(const RequestError& error);
  // Named sessions; those in use belong to the loop.
  NamedSessions& sessions() { return sessions_; }
  // Before a list of the sessions: SessionStore::Continue.
  bool ContinueScan(SessionStore::FolderScan& scan) { return store_.Continue(scan); }
  // Retries file reads and forks that wait for memory. Call after each piece of file work.
  void RetryWaiters() { memory_.RetryWaiters(); }

 private:
  using Answer = WaitingQueue::Answer;

  // What a request starts from: an idle session, or nothing.
  struct Source {
    IdleSession* idle = nullptr;
    bool copy = false;  // of the idle session, which stays
    int64_t n_tokens = 0;
    PrefixReuse reuse = PrefixReuse::kNone;
    std::vector<TokenId> rest = {};
  };

  // --- admission (scheduler_admit.cc) ---
  void Admit();
  // Fails the first request that waits for memory that will not come free. False: there is none.
  bool FailFirstTooLarge();
  Answer Start(const std::shared_ptr<Job>& job, int64_t max_rest);
  std::variant<Source, RequestError, Answer> FindSource(const std::shared_ptr<Job>& job);
  // Null: the job waits (`answer`), or has a load_error.
  IdleSession* FindNamed(const std::shared_ptr<Job>& job, Answer& answer);
  Source NamedSource(Job& job, IdleSession& idle) const;
  // Whether the request may take the session over without copying it, because it replaces it
  // anyway.
  bool Replaces(const Job& job, const IdleSession& idle) const;
  // Drops the session that the request replaces, if nothing else can make room. False: there is
  // none, or running work may make room.
  bool DropReplaced(const Job& job);
  Source PrefixSource(Job& job);
  // Whether the request waits for a saved session that shares a prefix with its prompt. Looks for
  // one once per request.
  bool WaitsForSavedPrefix(const std::shared_ptr<Job>& job);
  Result<SequenceBytes> PlanBytes(Job& job, const Source& source) const;
  Result<std::unique_ptr<Session>> TakeSession(Job& job, const Source& source);
  // Of the session, cut back to the source's tokens; takes it only if it succeeds.
  Result<std::unique_ptr<Sequence>> MakeSequence(const std::shared_ptr<Job>& job,
                                                 const Source& source,
                                                 std::unique_ptr<Session>& session);
  void Begin(const std::shared_ptr<Job>& job, Source source, const SequenceBytes& bytes);
  // Evicts sessions that another request waits for only on behalf of the first waiting request:
  // otherwise two requests would evict each other's sessions in turn.
  bool FreeMemoryFor(const Job& job, int64_t n_bytes, const IdleSession* spared = nullptr) {
    return memory_.Free(n_bytes, {.session = spared, .claimed = !waiting_.IsFirst(job)});
  }
  // Whether nothing runs, so that no memory will come free by itself.
  bool is_stuck() const { return active_.empty() && n_file_work() == 0; }
  // There is no room: the request waits for others to end. Sets Job::too_large.
  Answer WaitForMemory(Job& job, int64_t n_bytes) const;
  int64_t n_running() const { return active_.n_choices(); }

  // --- rounds (scheduler_round.cc) ---
  void Decode();
  void ReadPrompts();
  void FinishPrompts();
  void FinishPrompt(PrefillEntry& entry);
  void Choose(std::span<const std::unique_ptr<Sequence>> sequences);
  void DropCancelled();
  void NotifyPrefill() const;
  void CheckBytes();
  void CheckLimit();

  // --- ends (scheduler_end.cc) ---
  // Takes ended sequences out of active_.running and ends them.
  void Sweep();
  void End(size_t index);                                             // of active_.running
  void EndInPrefill(PrefillEntry& entry, const RequestError* error);  // no error: cancelled
  void Fail(Job& job, const RequestError& error);
  void NotifyCancelled(Job& job);
  void Keep(Job& job, Sequence& sequence);
  // Puts the session into the store if it is worth keeping; an exception leaves it to the caller.
  void ReturnSession(Job& job, std::unique_ptr<Session>&& session);
  // `last`: the final events, sent after the session's name is released.
  void EndJob(Job& job, const RequestError* error, std::span<const Event> last);

  Engine& engine_;
  SchedulerContext context_;
  int64_t model_bytes_;

  WaitingQueue waiting_;
  ActiveRequests active_;
  SessionStore store_;
  MemoryLimit memory_;
  NamedSessions sessions_;
  Batch batch_;
  model::Step prefill_step_;  // has its own buffers, as decode steps run in between
  Prefill prefill_;
  Pace pace_;
  Clock::TimePoint last_tokens_;  // end of the last decode step
  Clock::TimePoint prefill_began_;
  SchedulerState counts_;
  int64_t working_bytes_ = 0;  // of running sequences, as of the last round
  bool over_limit_ = false;    // and that was logged
  // Reused in every round, so that decode steps do not allocate.
  std::vector<Session*> decoding_;
  std::vector<TokenId> tokens_;
  std::vector<Result<void>> outcomes_;
};

}  // namespace winnow::runtime
