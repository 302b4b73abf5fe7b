#pragma once

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "base/log.h"
#include "base/result.h"
#include "runtime/scheduler/scheduler_types.h"
#include "runtime/store/saved_prefixes.h"
#include "runtime/store/session_folder.h"
#include "runtime/store/session_names.h"

namespace winnow::runtime {

// A session that nobody uses.
struct IdleSession {
  std::string name = {};       // empty: kept for its prefix, an ended sequence or what a file had
  std::string read_from = {};  // that file, without a name of its own
  std::unique_ptr<Session> session = {};
  std::vector<TokenId> unread =
      {};                  // of its text, but not in the cache: the last token of an answer
  int64_t n_document = 0;  // Request::n_document
  Clock::TimePoint used = {};
  bool copied = false;                // a request uses a copy that may take its place
  bool saved = false;                 // the file of its name has it as it is
  int64_t bytes = 0;                  // IdleBytes, set by Put
  Clock::TimePoint stays_until = {};  // it could not be put away
};

// The sessions that wait for their next request, in memory and in the folder. One thread
// at a time; a FileTask runs in any, and touches nothing that changes.
class SessionStore {
 public:
  // No folder: in memory only. All outlive the store.
  SessionStore(Engine& engine, const SchedulerOptions& options, const SessionFolder* folder,
               SessionNames& names, Log& log, const Clock& clock);

  // --- in memory ---
  IdleSession* Find(const std::string& name);
  // Takes the place of one of the same name.
  void Put(IdleSession session);
  // To go on with. Requires: it is not being saved.
  IdleSession Take(IdleSession& session);
  // For good.
  void Drop(IdleSession& session);
  // No request uses a copy any more.
  void EndCopies();
  const std::list<IdleSession>& sessions() const { return sessions_; }

  // What there is of a prompt.
  struct Prefix {
    IdleSession* idle = nullptr;
    PrefixMatch match = {};
  };
  // The longest beginning of `prompt` that a session of such options can go on from (MatchPrefix).
  Prefix FindPrefix(std::span<const TokenId> prompt, const SessionOptions& options,
                    bool across_questions);
  // The same of saved sessions that are not in memory, of at least n_wanted tokens: the file's
  // name, or nothing.
  std::string FindSavedPrefix(std::span<const TokenId> prompt, const SessionOptions& options,
                              bool across_questions, int64_t n_wanted) const {
    return saved_prefixes_.Find(prompt, options, across_questions, n_wanted).file;
  }

  // --- memory ---
  // With those that have left, but are still being saved.
  int64_t bytes() const { return bytes_ + leaving_bytes_; }
  // What is not to be put away.
  struct Spared {
    const IdleSession* session = nullptr;
    bool claimed = false;  // those that a request waits for
  };
  int64_t EvictableBytes(const Spared& spared) const;  // what Evict can free
  // Of sessions that are being put away, deleted or not: free when they are written.
  int64_t evicting_bytes() const;
  void DropUnnamed(int n_left);
  // What was read from the file, without a name of its own.
  void DropReadFrom(const std::string& file);

  // --- in the folder ---
  bool HasFile(const std::string& name) const { return folder_ != nullptr && folder_->Has(name); }
  // What the session of a file takes in memory at most. Errors: those of ReadSessionInfo,
  // SessionOptionsFrom and Session::Make.
  Result<int64_t> ReadMaxBytes(const std::string& file) const;
  int64_t n_heads_read() const { return n_heads_read_; }  // from files
  Result<void> Save(const IdleSession& session, const std::string& file,
                    Durability durability = Durability::kOnDisk);
  // What is done with a file in another thread; nothing: it succeeded.
  using FileTask = std::function<std::optional<RequestError>()>;
  // Save in another thread, which runs what this returns, once. Until EndSave the session does
  // not change: who goes on with it goes on with a copy.
  struct Saving {
    const Session* session = nullptr;
    std::string file = {};
    bool under_its_name = false;  // the session is called as the file
    FileTask write = {};
  };
  Saving BeginSave(const IdleSession& session, const std::string& file,
                   Durability durability = Durability::kOnDisk);
  void EndSave(const Saving& saving, bool is_written);
  // Puts the session away that was not used for longest. kGone: it has left, for good or as it is
  // in its file; kLeaves: it is to be written, EndEvict is called with how that ended, and it
  // leaves then; kNone: none can be put away.
  struct Eviction {
    enum class Kind { kNone, kGone, kLeaves };
    Kind kind = Kind::kNone;
    Saving saving = {};  // kLeaves
  };
  Eviction Evict(const Spared& spared);
  void EndEvict(const Saving& saving, const RequestError* error);
  bool saving(const IdleSession& session) const { return saving_.contains(session.session.get()); }
  // Whether what it is now is being written to the file, and nothing else is to be done with that.
  bool saving_to(const IdleSession& session, const std::string& file) const;
  // A file is to be written, read or removed in another thread, until the end. The session of its
  // name is not evicted meanwhile: it would be written before what was asked for earlier.
  void BeginFileWork(const std::string& file) { file_work_.insert(file); }
  void EndFileWork(const std::string& file);
  int n_file_work() const { return static_cast<int>(file_work_.size()); }  // with saves
  // Reads a file into `read`, which has no name yet. Errors: kInvalid where RestoreSession has one;
  // kBusy where the file has changed since ReadMaxBytes, and its session may take more.
  FileTask MakeReader(const std::string& file, int64_t max_bytes,
                      std::shared_ptr<IdleSession> read) const;
  // Of IdleSession::unread what goes on with the text: no token that ends generation.
  std::span<const TokenId> CutShort(std::span<const TokenId> unread) const;
  // Reads only the text of a file. Error: kNotFound where it cannot be read.
  FileTask MakeTextReader(const std::string& file, std::shared_ptr<SessionTokens> read) const;
  // It was removed from the folder.
  void FileRemoved(const std::string& file);
  // What was known of a file does not hold any more.
  void FileChanged(const std::string& file);
  // In memory or saved; nothing: neither.
  std::optional<SessionInfo> Describe(const std::string& name, Clock::TimePoint now) const;
  std::vector<SessionInfo> List(Clock::TimePoint now) const;
  // As of the last change made here, or list.
  int n_saved() const { return static_cast<int>(files_.size()); }

 private:
  // What a file says of itself, read again only when it has changed.
  struct Head {
    SessionFolder::Version version = {};
    Result<SessionFileInfo> info = Error{};
    std::optional<int64_t> max_bytes = {};
  };
  Head* FindHead(const std::string& file) const;  // null: there is no such file

  // So that FindSavedPrefix finds it.
  void IndexText(const std::string& file, SessionInput& input);
  void IndexText(const std::string& file, const Session& session);
  bool CanEvict(const IdleSession& session, const Spared& spared) const;
  IdleSession* Oldest(const Spared& spared);  // of those that can be evicted
  std::optional<SessionInfo> DescribeFile(const std::string& file) const;

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
    std::unique_ptr<Session> session = {};  // that has left sessions_
    int64_t bytes = 0;                      // of it
    int64_t evicting_bytes = 0;             // it leaves when it is written; 0: it stays
  };
  std::map<const Session*, BeingSaved> saving_;
  int64_t leaving_bytes_ = 0;
  std::multiset<std::string> file_work_;  // names of files
  mutable std::set<std::string> files_;   // in the folder
  mutable std::map<std::string, Head> heads_;
  mutable int64_t n_heads_read_ = 0;
  SavedPrefixes saved_prefixes_;
};

}  // namespace winnow::runtime
