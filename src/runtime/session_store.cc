#include "runtime/session_store.h"

#include <algorithm>
#include <sstream>
#include <utility>

#include "base/check.h"
#include "runtime/scheduler_memory.h"
#include "runtime/scheduler_sequence.h"

namespace winnow::runtime {
namespace {

int64_t CommonLength(std::span<const TokenId> a, std::span<const TokenId> b) {
  return std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin();
}

// Notes of a session file: tokens of the text that are not in the cache, and how many tokens its
// document has.
constexpr std::string_view kUnread = "unread";
constexpr std::string_view kDocument = "document";

// After a session could not be written.
constexpr auto kRetryAfter = std::chrono::seconds(10);

std::string NotesFrom(const IdleSession& session) {
  std::string notes(kUnread);
  for (const TokenId token : session.unread) notes += " " + std::to_string(token);
  if (session.n_document > 0) {
    notes += " " + std::string(kDocument) + " " + std::to_string(session.n_document);
  }
  return notes;
}

// Notes of other programs say nothing of it.
struct Notes {
  std::vector<TokenId> unread;
  int64_t n_document = 0;
};
Notes ReadNotes(const SessionFileInfo& info, int64_t vocabulary) {
  std::istringstream in(info.notes);
  std::string word;
  Notes notes;
  if (!(in >> word) || word != kUnread) return {};
  for (TokenId token = 0; in >> token;) {
    if (token < 0 || token >= vocabulary) return {};
    notes.unread.push_back(token);
  }
  in.clear();
  if (!(in >> word) || word != kDocument || !(in >> notes.n_document)) notes.n_document = 0;
  if (notes.n_document < 0 || notes.n_document > info.n_tokens) notes.n_document = 0;
  return notes;
}

// A session in a file of file_bytes.
struct SavedSession {
  SessionOptions options = {};
  int64_t max_bytes = 0;  // in memory
};
Result<SavedSession> SavedSessionFrom(const SessionFileInfo& info, int64_t file_bytes,
                                      Engine& engine, const SessionOptions& defaults) {
  SavedSession saved;
  WINNOW_ASSIGN(saved.options, SessionOptionsFrom(info));
  saved.options.row_block = defaults.row_block;
  saved.options.on_projections = defaults.on_projections;
  WINNOW_ASSIGN(const auto empty, Session::Make(engine, saved.options));
  saved.max_bytes = MaxRestoredBytes(*empty, info.n_tokens, file_bytes);
  return saved;
}

}  // namespace

SessionStore::SessionStore(Engine& engine, const SchedulerOptions& options,
                           const SessionFolder* folder, SessionNames& names, Log& log,
                           const Clock& clock)
    : engine_(engine), options_(options), folder_(folder), names_(names), log_(log), clock_(clock) {
  if (folder_ == nullptr) return;
  for (const std::string& file : folder_->List()) {
    if (auto input = folder_->Read(file)) IndexText(file, *input);
  }
}

void SessionStore::IndexText(const std::string& file, SessionInput& input) {
  const auto text = ReadSessionText(input);
  if (!text || text->info.model != engine_.model_hash()) return;
  const auto options = SessionOptionsFrom(text->info);
  if (options) saved_prefixes_.Set(file, *options, text->tokens, text->has_logits);
}

void SessionStore::IndexText(const std::string& file, const Session& session) {
  saved_prefixes_.Set(file, session.options(), session.tokens(), !session.logits().empty());
}

IdleSession* SessionStore::Find(const std::string& name) {
  const auto found = std::ranges::find_if(
      sessions_, [&](const IdleSession& session) { return session.name == name; });
  return found == sessions_.end() || name.empty() ? nullptr : &*found;
}

void SessionStore::Put(IdleSession session) {
  if (IdleSession* old = Find(session.name)) Drop(*old);
  session.bytes = IdleBytes(*session.session);
  bytes_ += session.bytes;
  sessions_.push_back(std::move(session));
}

void SessionStore::Drop(IdleSession& session) {
  const auto being_saved = saving_.find(session.session.get());
  if (being_saved != saving_.end()) {
    being_saved->second.session = std::move(session.session);
    being_saved->second.bytes = session.bytes;
    leaving_bytes_ += session.bytes;
  }
  Take(session);
}

IdleSession SessionStore::Take(IdleSession& session) {
  WINNOW_CHECK(!saving(session));
  const auto found =
      std::ranges::find_if(sessions_, [&](const IdleSession& other) { return &other == &session; });
  WINNOW_CHECK(found != sessions_.end());
  IdleSession taken = std::move(*found);
  bytes_ -= taken.bytes;
  sessions_.erase(found);
  return taken;
}

SessionStore::Prefix SessionStore::FindPrefix(std::span<const TokenId> prompt,
                                              const SessionOptions& options,
                                              bool across_questions) {
  Prefix best;
  for (IdleSession& idle : sessions_) {
    const Session& session = *idle.session;
    if (!SameCache(session.options(), options)) continue;
    const PrefixMatch match = MatchPrefix(session.options(),
                                          {.n_tokens = session.n_tokens(),
                                           .n_common = CommonLength(prompt, session.tokens()),
                                           .has_logits = !session.logits().empty()},
                                          std::ssize(prompt), across_questions);
    const int64_t n = match.n_tokens;
    // Of equals the unnamed one, which need not be copied.
    if (n > best.match.n_tokens || (n == best.match.n_tokens && n > 0 && idle.name.empty())) {
      best = {.idle = &idle, .match = match};
    }
  }
  return best;
}

bool SessionStore::CanEvict(const IdleSession& session, const Spared& spared) const {
  if (&session == spared.session || session.copied || saving(session)) return false;
  if (file_work_.contains(session.name) || session.stays_until > clock_.now()) return false;
  // A session that a request waits for may be read from the disk again, but not lost.
  return session.name.empty() || !names_.busy(session.name) ||
         (folder_ != nullptr && !spared.claimed);
}

int64_t SessionStore::EvictableBytes(const Spared& spared) const {
  int64_t bytes = 0;
  for (const IdleSession& session : sessions_) {
    if (CanEvict(session, spared)) bytes += session.bytes;
  }
  return bytes;
}

int64_t SessionStore::evicting_bytes() const {
  int64_t bytes = 0;
  for (const auto& [session, being_saved] : saving_) bytes += being_saved.evicting_bytes;
  return bytes;
}

IdleSession* SessionStore::Oldest(const Spared& spared) {
  IdleSession* oldest = nullptr;
  for (IdleSession& session : sessions_) {
    if (!CanEvict(session, spared)) continue;
    if (oldest == nullptr || session.used < oldest->used) oldest = &session;
  }
  return oldest;
}

SessionStore::Eviction SessionStore::Evict(const Spared& spared) {
  IdleSession* session = Oldest(spared);
  if (session == nullptr) return {};
  if (!session->name.empty() && folder_ != nullptr) {
    // The next process may read it, not the next machine: nobody waits for the disk.
    Eviction leaves = {.kind = Eviction::Kind::kLeaves,
                       .saving = BeginSave(*session, session->name, Durability::kWritten)};
    saving_.at(session->session.get()).evicting_bytes = session->bytes;
    return leaves;
  }
  if (!session->name.empty()) {
    names_.Close(session->name);
    log_.Info("session " + session->name + " was closed: its memory is needed");
  }
  Take(*session);
  return {.kind = Eviction::Kind::kGone};
}

void SessionStore::EndEvict(const Saving& saving, const RequestError* error) {
  saving_.at(saving.session).evicting_bytes = 0;
  const auto found = std::ranges::find_if(sessions_, [&](const IdleSession& session) {
    return session.session.get() == saving.session;
  });
  const bool is_there = found != sessions_.end();  // or was deleted, or replaced
  EndSave(saving, error == nullptr);
  if (!is_there) return;
  if (error != nullptr) {
    log_.Warning("session " + found->name + " stays in memory: " + error->message);
    found->stays_until = clock_.now() + kRetryAfter;
  } else if (!saving_.contains(found->session.get()) && !found->copied) {
    Take(*found);
  }
}

void SessionStore::DropUnnamed(int n_left) {
  const auto unnamed = [](const IdleSession& session) { return session.name.empty(); };
  for (auto n = std::ranges::count_if(sessions_, unnamed); n > n_left; --n) {
    IdleSession* oldest = nullptr;
    for (IdleSession& session : sessions_) {
      if (unnamed(session) && (oldest == nullptr || session.used < oldest->used)) oldest = &session;
    }
    if (oldest != nullptr) Take(*oldest);
  }
}

void SessionStore::DropReadFrom(const std::string& file) {
  for (auto session = sessions_.begin(); session != sessions_.end();) {
    IdleSession& here = *session++;
    if (here.read_from == file) Drop(here);
  }
}

SessionStore::Head* SessionStore::FindHead(const std::string& file) const {
  if (folder_ == nullptr) return nullptr;
  const auto version = folder_->FindVersion(file);
  if (!version) {
    heads_.erase(file);
    return nullptr;
  }
  const auto known = heads_.find(file);
  if (known != heads_.end() && known->second.version == *version) return &known->second;
  ++n_heads_read_;
  Head head = {.version = *version};
  auto input = folder_->Read(file);
  if (input) {
    head.info = ReadSessionInfo(*input);
  } else {
    head.info = input.error();
  }
  return &(heads_[file] = std::move(head));
}

void SessionStore::FileChanged(const std::string& file) {
  n_saved_ = -1;
  heads_.erase(file);
  saved_prefixes_.Erase(file);
}

Result<int64_t> SessionStore::ReadMaxBytes(const std::string& file) const {
  Head* head = FindHead(file);
  if (head == nullptr) return Error{"there is no saved session " + file};
  if (head->max_bytes) return *head->max_bytes;
  WINNOW_TRY(head->info);
  WINNOW_ASSIGN(const SavedSession saved,
                SavedSessionFrom(*head->info, head->version.n_bytes, engine_, options_.defaults));
  head->max_bytes = saved.max_bytes;
  return saved.max_bytes;
}

Result<void> SessionStore::Save(const IdleSession& session, const std::string& file,
                                Durability durability) {
  WINNOW_CHECK(folder_ != nullptr);
  FileChanged(file);
  WINNOW_ASSIGN(OutputFile output, folder_->Write(file));
  WINNOW_TRY(SaveSession(*session.session, std::move(output), NotesFrom(session), durability));
  IndexText(file, *session.session);
  return {};
}

SessionStore::Saving SessionStore::BeginSave(const IdleSession& session, const std::string& file,
                                             Durability durability) {
  WINNOW_CHECK(folder_ != nullptr);
  saving_[session.session.get()].files.insert(file);
  BeginFileWork(file);
  const auto write = [folder = folder_, file, durability, notes = NotesFrom(session),
                      session = session.session.get()]() -> std::optional<RequestError> {
    auto output = folder->Write(file);
    if (!output) return RequestError{ErrorKind::kInternal, output.error().message};
    const auto saved = SaveSession(*session, std::move(output).value(), notes, durability);
    if (!saved) return RequestError{ErrorKind::kInternal, saved.error().message};
    return std::nullopt;
  };
  return {.session = session.session.get(), .file = file, .write = write};
}

bool SessionStore::saving_to(const IdleSession& session, const std::string& file) const {
  const auto found = saving_.find(session.session.get());
  return found != saving_.end() && found->second.files.contains(file) &&
         file_work_.count(file) == 1 && found->second.evicting_bytes == 0;
}

void SessionStore::EndSave(const Saving& saving, bool is_written) {
  FileChanged(saving.file);
  if (is_written) IndexText(saving.file, *saving.session);
  EndFileWork(saving.file);
  const auto found = saving_.find(saving.session);
  WINNOW_CHECK(found != saving_.end());
  found->second.files.erase(found->second.files.find(saving.file));
  if (!found->second.files.empty()) return;
  leaving_bytes_ -= found->second.bytes;
  saving_.erase(found);
}

void SessionStore::EndFileWork(const std::string& file) {
  const auto found = file_work_.find(file);
  WINNOW_CHECK(found != file_work_.end());
  file_work_.erase(found);
}

// All comes from one open file: another may take its place at any time.
SessionStore::FileTask SessionStore::MakeReader(const std::string& file, int64_t max_bytes,
                                                std::shared_ptr<IdleSession> read) const {
  WINNOW_CHECK(folder_ != nullptr);
  // False: the file has changed.
  const auto read_file = [this, file, max_bytes, read = std::move(read)]() -> Result<bool> {
    WINNOW_ASSIGN(SessionInput input, folder_->Read(file));
    WINNOW_ASSIGN(const SessionFileInfo info, ReadSessionInfo(input));
    WINNOW_ASSIGN(
        const SavedSession saved,
        SavedSessionFrom(info, static_cast<int64_t>(input.n_bytes), engine_, options_.defaults));
    if (saved.max_bytes > max_bytes) return false;
    Notes notes = ReadNotes(info, engine_.model().hyperparameters().vocabulary);
    read->unread = std::move(notes.unread);
    read->n_document = notes.n_document;
    WINNOW_ASSIGN(read->session, RestoreSession(engine_, saved.options, std::move(input)));
    // It may be written in place meanwhile.
    return read->session->n_tokens() == info.n_tokens && IdleBytes(*read->session) <= max_bytes;
  };
  return [file, read_file]() -> std::optional<RequestError> {
    const Result<bool> is_same = read_file();
    if (!is_same) return RequestError{ErrorKind::kInvalid, is_same.error().message};
    if (*is_same) return std::nullopt;
    return RequestError{ErrorKind::kBusy, "session " + file + ": its file has changed; try again"};
  };
}

Result<void> SessionStore::RemoveFile(const std::string& name) {
  FileChanged(name);
  return folder_ == nullptr ? Result<void>() : folder_->Remove(name);
}

std::vector<SessionInfo> SessionStore::List(Clock::TimePoint now) const {
  std::vector<SessionInfo> list;
  for (const IdleSession& session : sessions_) {
    if (session.name.empty()) continue;
    list.push_back({.id = session.name,
                    .n_tokens = session.session->n_tokens(),
                    .cache = ReportCache(*session.session),
                    .busy = session.copied,
                    .idle_seconds = std::chrono::duration<double>(now - session.used).count()});
  }
  const auto in_memory = list;
  const auto names = folder_ == nullptr ? std::vector<std::string>() : folder_->List();
  for (const std::string& name : names) {
    const auto same = [&](const SessionInfo& info) { return info.id == name; };
    if (std::ranges::any_of(in_memory, same)) continue;
    SessionInfo info = {.id = name, .on_disk = true};
    const Head* head = FindHead(name);
    if (head == nullptr || !head->info) continue;
    info.cache.bytes = head->version.n_bytes;
    info.n_tokens = head->info->n_tokens;
    info.cache.method = head->info->method.empty() ? "full" : head->info->method;
    info.cache.n_seen = info.n_tokens;
    list.push_back(info);
  }
  std::erase_if(heads_, [&](const auto& head) {
    return !std::binary_search(names.begin(), names.end(), head.first);
  });
  return list;
}

int SessionStore::n_saved() const {
  if (n_saved_ < 0) n_saved_ = folder_ == nullptr ? 0 : static_cast<int>(folder_->List().size());
  return n_saved_;
}

}  // namespace winnow::runtime
