#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "base/log.h"
#include "runtime/scheduler/scheduler.h"
#include "runtime/scheduler/scheduler_job.h"
#include "runtime/scheduler/scheduler_pace.h"
#include "runtime/scheduler/scheduler_queue.h"
#include "runtime/scheduler/scheduler_sequence.h"
#include "runtime/session/batch.h"
#include "runtime/session/prefill.h"
#include "runtime/store/session_store.h"

namespace winnow::runtime {

// The scheduler's work on the engine, round by round. Not thread-safe. Requests come from
// Scheduler, which has checked them.
class SchedulerLoop {
 public:
  // Called when work has ended; null: without an error.
  using Then = std::function<void(const RequestError* error)>;
  // Runs `task` on the I/O thread, then `then` on the loop's.
  using QueueFileTask = std::function<void(SessionStore::FileTask task, Then then)>;
  // All arguments must outlive the loop. Without a folder, sessions live in memory only.
  SchedulerLoop(Engine& engine, const SchedulerOptions& options, const SessionFolder* folder,
                SessionNames& names, Log& log, const Clock& clock, QueueFileTask file_work);
  ~SchedulerLoop();

  void Add(std::shared_ptr<Job> job) { waiting_.Add(std::move(job)); }
  // One decode step of all running sequences, then a part of the prompt in prefill. False: there
  // was nothing to do, or nothing until a file is read or written.
  bool Round();
  int n_file_work() const { return store_.n_file_work(); }  // running or queued
  bool idle() const { return waiting_.empty() && running_.empty() && in_prefill_.empty(); }
  size_t n_waiting() const { return waiting_.size(); }
  SchedulerState state() const;
  // Bytes of the model and the buffers, which no request can have.
  int64_t fixed_bytes() const { return fixed_bytes_; }

  // Ends everything with an error.
  void FailAll(const RequestError& error);
  // If there is a folder, saves named sessions on the I/O thread: idle ones now, others when their
  // requests end.
  void BeginSaves();
  // Saves those that are left in the calling thread.
  void SaveAll();

  // Named sessions (see Scheduler). The caller has claimed the names.
  using SessionOutcome = Scheduler::SessionOutcome;
  bool Has(const std::string& id) { return store_.Find(id) != nullptr; }  // in memory
  // Whether looking at it takes file work: it is neither running nor in memory.
  bool IsOnlyInFile(const std::string& id) { return FindRunning(id) == nullptr && !Has(id); }
  SessionOutcome Describe(const std::string& id);
  // Calls `then` when the session is in memory, at once or once its file was read; with an error if
  // it cannot be loaded.
  void Load(const std::string& id, const Then& then);
  // Reads a file into session `id`, replacing one that exists.
  void Restore(const std::string& id, const std::string& file, const Then& then) {
    ReadFile(id, file, /*replaces=*/true, then);
  }
  // Loads `from`, and copies it when there is room.
  void Fork(const std::string& from, const std::string& to, const Then& then);
  // Prepares a save, which the caller runs in another thread and then passes to EndSave. Requires:
  // the session is in memory. Errors (kBusy): the same state is already being saved to this file;
  // the file is waiting to be read; another session has the file's name and is in use or unsaved.
  std::variant<SessionStore::Saving, RequestError> BeginSave(const std::string& id,
                                                             const std::string& file);
  void EndSave(const SessionStore::Saving& saving, bool is_written) {
    store_.EndSave(saving, is_written);
  }
  // Describes the session to be deleted. Errors: kNotFound; kBusy while its file waits to be read.
  SessionOutcome FindToDelete(const std::string& id);
  // Between BeginDelete and EndDelete, the caller removes the session's file in another thread if
  // there is a folder.
  std::shared_ptr<FileWork> BeginDelete(const std::string& id) {
    return std::make_shared<FileWork>(store_, id);
  }
  void EndDelete(const std::string& id, bool is_removed);
  // Retries file reads and forks that wait for memory. Call after each piece of file work.
  void RetryWaiters();
  std::vector<SessionInfo> List() const;
  // Of a session in memory, running or saved.
  SessionOutcome FindSession(const std::string& id) const;
  void ReadTokens(const std::string& id,
                  const std::function<void(std::variant<SessionTokens, RequestError>)>& done);
  void KeptPositions(const std::string& id, bool by_head,
                     const std::function<void(std::variant<KeptTokens, RequestError>)>& done);

 private:
  using Answer = WaitingQueue::Answer;

  // A request in prefill. Its sequence is null once it has ended while others that share the pass
  // go on.
  struct PrefillEntry {
    std::unique_ptr<Sequence> sequence = {};
    std::vector<TokenId> rest = {};  // of the prompt, to be read
    SequenceBytes bytes = {};        // steady: of each choice
    int64_t reserved() const;
  };
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
  // Whether n_bytes more are free. If not, evicts idle sessions as needed; those that must be
  // written first free their bytes later (memory_will_be_freed).
  bool FreeMemory(int64_t n_bytes, const SessionStore::EvictionFilter& spared);
  // FreeMemory evicts sessions that another request waits for only on behalf of the first waiting
  // request: otherwise two requests would evict each other's sessions in turn.
  bool FreeMemoryFor(const Job& job, int64_t n_bytes, const IdleSession* spared = nullptr) {
    return FreeMemory(n_bytes, {.session = spared, .claimed = !waiting_.IsFirst(job)});
  }
  // Whether file work is under way that may free memory, apart from n_own tasks of the caller and
  // reads that wait for memory themselves.
  bool memory_will_be_freed(int n_own = 0) const {
    return n_file_work() - static_cast<int>(waiting_reads_.size()) > n_own;
  }
  bool fits_alone(int64_t n_bytes) const {
    return options_.memory_limit_bytes == 0 ||
           fixed_bytes_ + n_bytes <= options_.memory_limit_bytes;
  }
  // Whether nothing runs, so that no memory will come free by itself.
  bool is_stuck() const { return in_prefill_.empty() && running_.empty() && n_file_work() == 0; }
  // There is no room: the request waits for others to end. Sets Job::too_large.
  Answer WaitForMemory(Job& job, int64_t n_bytes) const;
  // The error for `what`, which needs n_bytes besides n_beside that stay: kTooLarge if that can
  // never fit, kQueueFull if it does not fit now.
  RequestError OutOfMemory(const std::string& what, int64_t n_bytes, int64_t n_beside) const;
  int64_t ReservedBytes() const;
  int64_t n_running() const;

  // --- exceptions (scheduler_sessions.cc) ---
  // The error of what `work` throws, which is logged. `name`: of `what`, such as a session.
  template <class Work>
  std::optional<RequestError> Try(const char* what, const std::string& name,
                                  const Work& work) const {
    try {
      work();
      return std::nullopt;
    } catch (const std::exception& problem) {
      return LogThrown(what, name, problem);
    }
  }
  RequestError LogThrown(const char* what, const std::string& name,
                         const std::exception& problem) const noexcept;

  // --- sessions (scheduler_sessions.cc) ---
  const Sequence* FindRunning(const std::string& id) const;  // null: not running
  void ReadFile(const std::string& id, const std::string& file, bool replaces, const Then& then);
  // ReadFile, done once for all callers that ask at the same time. Without an id the session gets
  // no name and is kept for its prefix.
  void ReadOnce(const std::string& id, const std::string& file, const Then& then);
  struct FileRead {
    std::string id = {}, file = {};
    std::shared_ptr<FileWork> work = {};
    bool replaces = false;
    int64_t max_bytes = 0;
    Then then = {};
  };
  void ReadWhenMemoryIsFree(const FileRead& read);
  void PutRead(const FileRead& read, IdleSession idle);
  // Of a session in memory. False: it waits for memory, and calls `then` later.
  std::variant<bool, RequestError> PutFork(const std::string& from, const std::string& to,
                                           const Then& then);

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

  // Takes ended sequences out of running_ and ends them.
  void Sweep();
  void End(size_t index);                                             // of running_
  void EndInPrefill(PrefillEntry& entry, const RequestError* error);  // no error: cancelled
  void Fail(Job& job, const RequestError& error);
  void NotifyCancelled(Job& job);
  void Keep(Job& job, Sequence& sequence);
  // Takes the session when nothing can throw any more.
  void ReturnSession(Job& job, std::unique_ptr<Session>&& session);
  // `last`: the final events, sent after the session's name is released.
  void EndJob(Job& job, const RequestError* error, std::span<const Event> last);
  void QueueSave(const std::string& id);
  // Queues a write that the store has begun, and ends it there, also if this throws.
  void QueueWrite(const SessionStore::Saving& saving, bool evicts);

  Engine& engine_;
  const SchedulerOptions& options_;
  SessionNames& names_;
  Log& log_;
  const Clock& clock_;
  QueueFileTask file_work_;
  int64_t model_bytes_;
  int64_t fixed_bytes_;

  WaitingQueue waiting_;
  std::vector<std::unique_ptr<Sequence>> running_;
  SessionStore store_;
  std::map<std::pair<std::string, std::string>, std::vector<Then>> loading_;  // by session and file
  int64_t loading_bytes_ = 0;                          // upper bound for the sessions being read
  std::vector<std::function<void()>> memory_waiters_;  // retried when some file work has ended
  std::multiset<std::string> waiting_reads_;           // files of the reads in memory_waiters_
  bool waits_to_be_read(const std::string& file) const { return waiting_reads_.contains(file); }
  Batch batch_;
  model::Step prefill_step_;              // has its own buffers, as decode steps run in between
  std::vector<PrefillEntry> in_prefill_;  // in the order of prefill_
  Prefill prefill_;
  Pace pace_;
  Clock::TimePoint last_tokens_;  // end of the last decode step
  Clock::TimePoint prefill_began_;
  SchedulerState counts_;
  int64_t working_bytes_ = 0;  // of running sequences, as of the last round
  bool over_limit_ = false;    // and that was logged
  bool saves_on_end_ = false;  // BeginSaves was called
  // Reused in every round, so that decode steps do not allocate.
  std::vector<Session*> sessions_;
  std::vector<TokenId> tokens_;
  std::vector<Result<void>> outcomes_;
};

}  // namespace winnow::runtime
