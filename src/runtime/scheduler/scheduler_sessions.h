#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "runtime/scheduler/scheduler.h"
#include "runtime/scheduler/scheduler_active.h"
#include "runtime/scheduler/scheduler_context.h"
#include "runtime/scheduler/scheduler_limit.h"
#include "runtime/store/session_store.h"

namespace winnow::runtime {

// Named sessions between rounds: in use by an active request, idle in the store, or in a file. The
// caller has claimed the names. Not thread-safe.
class NamedSessions {
 public:
  using SessionOutcome = Scheduler::SessionOutcome;
  // All arguments must outlive it.
  NamedSessions(const SchedulerContext& context, const ActiveRequests& active, SessionStore& store,
                MemoryLimit& memory)
      : context_(context), active_(active), store_(store), memory_(memory) {}

  bool Has(const std::string& id) const { return store_.Find(id) != nullptr; }  // in memory
  // Whether looking at it takes file work: it is neither in use nor in memory.
  bool IsOnlyInFile(const std::string& id) const { return active_.Find(id) == nullptr && !Has(id); }
  SessionOutcome Describe(const std::string& id) const;
  // Calls `then` when the session is in memory, at once or once its file was read; with an error if
  // it cannot be loaded.
  void Load(const std::string& id, const Then& then);
  bool is_loading(const std::string& id) const { return loading_.contains({id, id}); }
  // Reads a file into session `id`, replacing one that exists.
  void Restore(const std::string& id, const std::string& file, const Then& then) {
    ReadFile(id, file, /*replaces=*/true, then);
  }
  // Reads a file into a session without a name, which is kept for its prefix.
  void LoadPrefix(const std::string& file, const Then& then) { ReadOnce("", file, then); }
  // Loads `from`, and copies it when there is room.
  void Fork(const std::string& from, const std::string& to, const Then& then);

  // Writes a session in memory to a file on the I/O thread; `then` hears how that ended. Errors
  // (kBusy), before anything is queued: the same state is already being saved to this file; the
  // file is waiting to be read; another session has the file's name and is in use or unsaved.
  std::optional<RequestError> Save(const std::string& id, const std::string& file,
                                   const Then& then);
  // If there is a folder, saves idle sessions on the I/O thread, now and when Ended is called.
  void BeginSaves();
  // A request that used the session has ended.
  void Ended(const std::string& id) {
    if (saves_on_end_) SaveIfChanged(id);
  }
  // Saves those that are left in the calling thread.
  void SaveAll();

  // Describes the session to be deleted. Errors: kNotFound; kBusy while its file waits to be read.
  SessionOutcome FindToDelete(const std::string& id) const;
  // Between BeginDelete and EndDelete, the caller removes the session's file in another thread if
  // there is a folder.
  std::shared_ptr<FileWork> BeginDelete(const std::string& id) {
    return std::make_shared<FileWork>(store_, id);
  }
  void EndDelete(const std::string& id, bool is_removed);

  std::vector<SessionInfo> List() const;
  // Of a session in memory, in use or saved.
  SessionOutcome Find(const std::string& id) const;
  void ReadTokens(const std::string& id,
                  const std::function<void(std::variant<SessionTokens, RequestError>)>& done);
  void KeptPositions(const std::string& id, bool by_head,
                     const std::function<void(std::variant<KeptTokens, RequestError>)>& done);

 private:
  struct FileRead {
    std::string id = {}, file = {};
    std::shared_ptr<FileWork> work = {};
    bool replaces = false;
    int64_t max_bytes = 0;
    Then then = {};
  };

  void ReadFile(const std::string& id, const std::string& file, bool replaces, const Then& then);
  // ReadFile, done once for all callers that ask at the same time.
  void ReadOnce(const std::string& id, const std::string& file, const Then& then);
  void ReadWhenMemoryIsFree(const FileRead& read);
  void PutRead(const FileRead& read, IdleSession idle);
  // Of a session in memory. False: it waits for memory, and calls `then` later.
  std::variant<bool, RequestError> PutFork(const std::string& from, const std::string& to,
                                           const Then& then);
  std::variant<SessionStore::Saving, RequestError> BeginSave(const std::string& id,
                                                             const std::string& file);
  void SaveIfChanged(const std::string& id);

  const SchedulerContext& context_;
  const ActiveRequests& active_;
  SessionStore& store_;
  MemoryLimit& memory_;
  std::map<std::pair<std::string, std::string>, std::vector<Then>> loading_;  // by session and file
  bool saves_on_end_ = false;
};

}  // namespace winnow::runtime
