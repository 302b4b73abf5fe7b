#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/log.h"
#include "base/result.h"
#include "runtime/scheduler/scheduler_types.h"
#include "runtime/store/saved_prefixes.h"
#include "runtime/store/session_folder.h"
#include "runtime/store/session_names.h"

namespace winnow::runtime {

// An idle session: no request uses it.
struct IdleSession {
  // Empty: kept for its prefix only (an ended sequence, or a session read from a file).
  std::string name = {};
  std::string read_from = {};  // that file, if the session has no name
  std::unique_ptr<Session> session = {};
  // Tokens of its text that are not in the cache: the last token of a response.
  std::vector<TokenId> unread = {};
  TextOutline outline = {};
  Clock::TimePoint used = {};
  bool copied = false;  // a request uses a copy, which may replace it
  bool saved = false;   // the file of its name holds its current state
  int64_t bytes = 0;    // IdleBytes, set by Put
  // It could not be written: not evicted before this time.
  Clock::TimePoint no_evict_until = {};
};

// The idle sessions, in memory and in the folder. Not thread-safe; a FileTask runs in any thread
// and touches no state that changes.
class SessionStore {
 public:
  // Without a folder, sessions are in memory only. All arguments must outlive the store.
  SessionStore(Engine& engine, const SchedulerOptions& options, const SessionFolder* folder,
               SessionNames& names, Log& log, const Clock& clock);

  // --- in memory ---
  IdleSession* Find(const std::string& name);
  // Replaces a session of the same name.
  void Put(IdleSession session);
  // The same; takes `session` when nothing can throw any more.
  void Put(IdleSession idle, std::unique_ptr<Session>&& session);
  // Removes a session and returns it, to be continued. Requires: it is not being saved.
  IdleSession Take(IdleSession& session);
  // Deletes a session from memory.
  void Drop(IdleSession& session);
  // No request uses a copy any more.
  void EndCopies();
  const std::list<IdleSession>& sessions() const { return sessions_; }

  // A session that shares a prefix with a prompt.
  struct Prefix {
    IdleSession* idle = nullptr;
    PrefixMatch match = {};
  };
  // The longest prefix of `prompt` that a session with these options can continue from
  // (MatchPrefix).
  Prefix FindPrefix(std::span<const TokenId> prompt, const SessionOptions& options,
                    bool across_questions);
  // The same for saved sessions, with at least n_wanted tokens: the file's name, or an empty
  // string.
  std::string FindSavedPrefix(std::span<const TokenId> prompt, const SessionOptions& options,
                              bool across_questions, int64_t n_wanted) const {
    return saved_prefixes_.Find(prompt, options, across_questions, n_wanted).file;
  }

  // Including sessions that have left but are still being saved.
  int64_t bytes() const { return bytes_ + leaving_bytes_; }
  // Sessions that must not be evicted.
  struct EvictionFilter {
    const IdleSession* session = nullptr;
    bool claimed = false;  // also those that a request waits for
  };
  int64_t EvictableBytes(const EvictionFilter& spared) const;  // that Evict can free
  // Bytes of sessions that are being evicted, deleted meanwhile or not: free once they are written.
  int64_t evicting_bytes() const;
  void DropUnnamed(int n_left);
  // Drops unnamed sessions that were read from the file.
  void DropReadFrom(const std::string& file);

  // --- in the folder ---
  bool HasFile(const std::string& name) const { return folder_ != nullptr && folder_->Has(name); }
  // Upper bound for the bytes in memory of the session in a file. Errors: those of ReadSessionInfo,
  // SessionOptionsFrom and Session::Make.
  Result<int64_t> ReadMaxBytes(const std::string& file) const;
  int64_t n_heads_read() const { return n_heads_read_; }  // heads of files read so far
  Result<void> Save(const IdleSession& session, const std::string& file,
                    Durability durability = Durability::kOnDisk);
  // Work on a file, run in another thread. No value: it succeeded.
  using FileTask = std::function<std::optional<RequestError>()>;
  // A save in another thread, which must run `write` once. Until EndSave the session does not
  // change: a request that continues it works on a copy.
  struct Saving {
    const Session* session = nullptr;
    std::string file = {};
    bool is_own_file = false;  // the session has the file's name
    FileTask write = {};
  };
  Saving BeginSave(const IdleSession& session, const std::string& file,
                   Durability durability = Durability::kOnDisk);
  void EndSave(const Saving& saving, bool is_written);
  // Evicts the least recently used session. kGone: it has left memory, for good or because its file
  // is up to date. kLeaves: it must be written first; call EndEvict with the outcome, and it leaves
  // then. kNone: none can be evicted.
  struct Eviction {
    enum class Kind { kNone, kGone, kLeaves };
    Kind kind = Kind::kNone;
    Saving saving = {};  // kLeaves
  };
  Eviction Evict(const EvictionFilter& spared);
  void EndEvict(const Saving& saving, const RequestError* error);
  bool saving(const IdleSession& session) const { return saving_.contains(session.session.get()); }
  // Whether its current state is being written to the file, and no other work on the file is
  // queued.
  bool saving_to(const IdleSession& session, const std::string& file) const;
  // Brackets work on a file in another thread (write, read, remove). The session of the file's name
  // is not evicted meanwhile: that would write it before work that was requested earlier.
  void BeginFileWork(const std::string& file) { file_work_.insert(file); }
  void EndFileWork(const std::string& file);
  int n_file_work() const { return static_cast<int>(file_work_.size()); }  // including saves
  // Reads a file into `read`, which has no name yet. Errors: kInvalid for the errors of
  // RestoreSession; kBusy if the file has changed since ReadMaxBytes and its session may take more.
  FileTask MakeReader(const std::string& file, int64_t max_bytes,
                      std::shared_ptr<IdleSession> read) const;
  // Sets `unread` and `ended` from IdleSession::unread.
  void SetUnread(std::span<const TokenId> unread, SessionTokens& text) const;
  // Reads only the text of a file. Error: kNotFound if it cannot be read.
  FileTask MakeTextReader(const std::string& file, std::shared_ptr<SessionTokens> read) const;
  // Call when a file was removed from the folder.
  void FileRemoved(const std::string& file);
  // Call when a file's contents have changed: drops what is known about it.
  void FileChanged(const std::string& file);
  // Of a session in memory or saved; no value: neither.
  std::optional<SessionInfo> Describe(const std::string& name, Clock::TimePoint now) const;
  // One look at each file of the folder, for changes that other processes made.
  struct FolderScan {
    std::optional<std::vector<std::string>> left = {};  // no value: not begun
  };
  // Looks at further files, for a part of the gap between tokens and at least at one. True: all are
  // done.
  bool Continue(FolderScan& scan);
  // All sessions. What other processes did to files is as of the last scan.
  std::vector<SessionInfo> List(Clock::TimePoint now) const;
  // As of the last change made by this process or the last scan.
  int n_saved() const { return static_cast<int>(files_.size()); }

 private:
  // The information in a file's header, read again only if the file has changed.
  struct Head {
    SessionFolder::Version version = {};
    Result<SessionFileInfo> info = Error{};
    std::optional<int64_t> max_bytes = {};
  };
  Head* FindHead(const std::string& file) const;  // null: there is no such file

  // Adds the text of a file for FindSavedPrefix.
  void IndexText(const std::string& file, SessionInput& input);
  void IndexText(const std::string& file, const Session& session);
  bool CanEvict(const IdleSession& session, const EvictionFilter& spared) const;
  IdleSession* Oldest(
      const EvictionFilter& spared);  // least recently used of those that can be evicted
  // `head` may be null. No value: the file cannot be read.
  std::optional<SessionInfo> DescribeFile(const std::string& file, const Head* head) const;

  Engine& engine_;
  const SchedulerOptions& options_;
  const SessionFolder* folder_;
  SessionNames& names_;
  Log& log_;
  const Clock& clock_;
  std::list<IdleSession> sessions_;
  int64_t bytes_ = 0;
  struct BeingSaved {
    std::multiset<std::string> files = {};
    std::unique_ptr<Session> session = {};  // if it has left sessions_
    int64_t bytes = 0;                      // of `session`
    int64_t evicting_bytes = 0;             // freed when it is written; 0: it stays
  };
  std::map<const Session*, BeingSaved> saving_;
  int64_t leaving_bytes_ = 0;
  std::multiset<std::string> file_work_;  // names of files
  std::set<std::string> files_;           // in the folder
  mutable std::map<std::string, Head> heads_;
  mutable int64_t n_heads_read_ = 0;
  SavedPrefixes saved_prefixes_;
};

// Work on a session's file, counted (SessionStore::BeginFileWork) until End or destruction. The
// store must outlive it.
class FileWork {
 public:
  FileWork(SessionStore& store, std::string file) : store_(store), file_(std::move(file)) {
    store_.BeginFileWork(file_);
  }
  ~FileWork() { End(); }
  FileWork(const FileWork&) = delete;
  FileWork& operator=(const FileWork&) = delete;
  void End() {
    if (!std::exchange(ended_, true)) store_.EndFileWork(file_);
  }

 private:
  SessionStore& store_;
  std::string file_;
  bool ended_ = false;
};

}  // namespace winnow::runtime
