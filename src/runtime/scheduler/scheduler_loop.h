#pragma once

#include <cstdint>
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

// What the scheduler does with the engine, round by round. One thread at a time; requests come from
// Scheduler, which checks them.
class SchedulerLoop {
 public:
  // Called with how something ended; null: without an error.
  using Then = std::function<void(const RequestError* error)>;
  // `task` on the I/O thread, then `then` on the loop's.
  using FileWork = std::function<void(SessionStore::FileTask task, Then then)>;
  // All outlive the loop. No folder: sessions live in memory only.
  SchedulerLoop(Engine& engine, const SchedulerOptions& options, const SessionFolder* folder,
                SessionNames& names, Log& log, const Clock& clock, FileWork file_work);
  ~SchedulerLoop();

  void Add(std::shared_ptr<Job> job) { waiting_.Add(std::move(job)); }
  // One decode step of all running sequences, then a part of the prompt in prefill. False: there
  // was nothing to do, or not until a file is read or written.
  bool Round();
  int n_file_work() const { return store_.n_file_work(); }  // under way or to come
  bool idle() const { return waiting_.empty() && running_.empty() && reading_.empty(); }
  size_t n_waiting() const { return waiting_.size(); }
  SchedulerState state() const;
  // Bytes that no request can have: the model and the buffers.
  int64_t fixed_bytes() const { return fixed_bytes_; }

  // Ends everything with an error.
  void FailAll(const RequestError& error);
  // Where there is a folder, named sessions that nobody uses are written on the I/O
  // thread: those that are idle now, and from now on others when their work ends.
  void BeginSaves();
  // Those that are left, in this thread.
  void SaveAll();

  // Named sessions (Scheduler says more). The caller has claimed the names.
  using SessionOutcome = Scheduler::SessionOutcome;
  bool Has(const std::string& id) { return store_.Find(id) != nullptr; }  // in memory
  // Whether looking at it takes work on a file.
  bool IsOnlyInFile(const std::string& id) { return FindRunning(id) == nullptr && !Has(id); }
  SessionOutcome Describe(const std::string& id);
  // Calls `then` when a session is in memory, at once or when its file was read; with an error
  // where it cannot be.
  void Load(const std::string& id, const Then& then);
  // Reads a file, which becomes session `id`, whether or not there is one.
  void Restore(const std::string& id, const std::string& file, const Then& then) {
    ReadFile(id, file, /*replaces=*/true, then);
  }
  // Loads `from`, and copies it when there is room.
  void Fork(const std::string& from, const std::string& to, const Then& then);
  // Requires: it is in memory. What is to be written in another thread, and then given to EndSave.
  // Error: it is to be already, as it is now.
  std::variant<SessionStore::Saving, RequestError> BeginSave(const std::string& id,
                                                             const std::string& file);
  void EndSave(const SessionStore::Saving& saving, bool is_written) {
    store_.EndSave(saving, is_written);
  }
  // What is to be deleted: kNotFound, or kBusy as long as it waits to be read.
  SessionOutcome FindToDelete(const std::string& id);
  // Between the two its file, if there can be one, is removed in another thread.
  void BeginDelete(const std::string& id) { store_.BeginFileWork(id); }
  void EndDelete(const std::string& id, bool is_removed);
  // Whoever waits for memory looks again. After each work on a file.
  void LookForRoom();
  std::vector<SessionInfo> List() const;
  // In memory, running or saved.
  SessionOutcome FindSession(const std::string& id) const;
  void ReadTokens(const std::string& id,
                  const std::function<void(std::variant<SessionTokens, RequestError>)>& done);
  void KeptPositions(const std::string& id, bool by_head,
                     const std::function<void(std::variant<KeptTokens, RequestError>)>& done);

 private:
  using Answer = WaitingQueue::Answer;

  // A request in prefill; null: it has ended, but those it shares the pass with go on.
  struct Reading {
    std::unique_ptr<Sequence> sequence = {};
    std::vector<TokenId> rest = {};  // of the prompt
    SequenceBytes bytes = {};        // of each choice
    int64_t reserved() const;
  };
  // What a request begins with.
  struct Source {
    IdleSession* idle = nullptr;
    bool copy = false;  // the idle session stays
    int64_t n_tokens = 0;
    PrefixReuse reuse = PrefixReuse::kNone;
    std::vector<TokenId> rest = {};
  };

  // --- admission (scheduler_admit.cc) ---
  void Admit();
  // Of those that wait for room that does not come; false: there is none.
  bool FailFirstTooLarge();
  Answer Start(const std::shared_ptr<Job>& job, int64_t max_rest);
  std::variant<Source, RequestError, Answer> FindSource(const std::shared_ptr<Job>& job);
  // Null: the job waits, or has got an error.
  IdleSession* FindNamed(const std::shared_ptr<Job>& job, Answer& answer);
  Source NamedSource(Job& job, IdleSession& idle) const;
  // Whether the request may change the session: it takes its place in any case.
  bool Replaces(const Job& job, const IdleSession& idle) const;
  // Where nothing else can make room for the request. False: it replaces none that is there.
  bool DropReplaced(const Job& job);
  Source PrefixSource(Job& job);
  // Whether the request waits for a saved session that its prompt begins with. Looks once.
  bool WaitsForSavedPrefix(const std::shared_ptr<Job>& job);
  Result<SequenceBytes> PlanBytes(Job& job, const Source& source) const;
  Result<std::unique_ptr<Session>> TakeSession(Job& job, const Source& source);
  void Begin(const std::shared_ptr<Job>& job, Source source, const SequenceBytes& bytes);
  // Whether so many bytes more are free. If not, idle sessions are put away as far as needed, and
  // some may be free later (room_comes).
  bool MakeRoom(int64_t n_bytes, const SessionStore::Spared& spared);
  // Only for the first of those that wait sessions are put away that another one waits for: two
  // would put each other's away by turns.
  bool MakeRoomFor(const Job& job, int64_t n_bytes, const IdleSession* spared = nullptr) {
    return MakeRoom(n_bytes, {.session = spared, .claimed = !waiting_.IsFirst(job)});
  }
  // Whether work on files goes on that may leave room, besides n_own of them.
  bool room_comes(int n_own = 0) const {
    return n_file_work() - static_cast<int>(waiting_reads_.size()) > n_own;
  }
  bool fits_alone(int64_t n_bytes) const {
    return options_.memory_limit_bytes == 0 ||
           fixed_bytes_ + n_bytes <= options_.memory_limit_bytes;
  }
  // Whether nothing runs, and so no memory comes free by itself.
  bool is_stuck() const { return reading_.empty() && running_.empty() && n_file_work() == 0; }
  // Where there is no room: the request waits for others to leave.
  Answer WaitForRoom(Job& job, int64_t n_bytes) const;
  // Of what needs so much, besides n_beside that stay: never, or not now.
  RequestError OutOfMemory(const std::string& what, int64_t n_bytes, int64_t n_beside) const;
  int64_t ReservedBytes() const;
  int64_t n_running() const;

  // --- sessions (scheduler_sessions.cc) ---
  const Sequence* FindRunning(const std::string& id) const;  // null: it is not
  void ReadFile(const std::string& id, const std::string& file, bool replaces, const Then& then);
  // The same once for all who ask at a time. No id: what the file has is kept for its prefix.
  void ReadOnce(const std::string& id, const std::string& file, const Then& then);
  // Its work on the file has begun.
  struct FileRead {
    std::string id = {}, file = {};
    bool replaces = false;
    int64_t max_bytes = 0;
    Then then = {};
  };
  void ReadWhenThereIsRoom(const FileRead& read);

  // --- rounds (scheduler_round.cc) ---
  void Decode();
  void ReadPrompts();
  void FinishPrompts();
  void FinishPrompt(Reading reading);
  void Choose(std::span<const std::unique_ptr<Sequence>> sequences);
  void DropCancelled();
  void TellPrefill() const;
  void CheckBytes();
  void CheckLimit();

  // --- ends (scheduler_end.cc) ---
  // Takes the ended ones out of running_.
  void Sweep();
  void End(std::unique_ptr<Sequence> sequence);
  void EndUnread(Reading reading, const RequestError* error);  // null: cancelled
  void Fail(Job& job, const RequestError& error);
  void TellCancelled(Job& job);
  void Keep(Job& job, Sequence& sequence);
  void GiveBack(Job& job, std::unique_ptr<Session> session);
  // `last`: events that it is told.
  void EndJob(Job& job, const RequestError* error, std::span<const Event> last);
  void SaveSoon(const std::string& id);

  Engine& engine_;
  const SchedulerOptions& options_;
  SessionNames& names_;
  Log& log_;
  const Clock& clock_;
  FileWork file_work_;
  int64_t model_bytes_;
  int64_t fixed_bytes_;

  WaitingQueue waiting_;
  std::vector<std::unique_ptr<Sequence>> running_;
  SessionStore store_;
  std::map<std::pair<std::string, std::string>, std::vector<Then>> loading_;  // by session and file
  int64_t loading_bytes_ = 0;                         // of what files become, at most
  std::vector<std::function<void()>> wait_for_room_;  // until some work on a file has ended
  std::multiset<std::string> waiting_reads_;          // files of those
  bool waits_to_be_read(const std::string& file) const { return waiting_reads_.contains(file); }
  Batch batch_;
  model::Step prefill_step_;      // its buffers are its own: decode steps run in between
  std::vector<Reading> reading_;  // in the order of prefill_
  Prefill prefill_;
  Pace pace_;
  Clock::TimePoint last_tokens_;  // end of the last decode step
  Clock::TimePoint prefill_began_;
  SchedulerState counts_;
  int64_t working_bytes_ = 0;  // of running sequences, as of the last round
  bool over_limit_ = false;    // and it is known
  bool saves_ended_ = false;   // since BeginSaves
  // Kept from round to round.
  std::vector<Session*> sessions_;
  std::vector<TokenId> tokens_;
  std::vector<Result<void>> outcomes_;
};

}  // namespace winnow::runtime
