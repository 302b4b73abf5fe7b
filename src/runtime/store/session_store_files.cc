// SessionStore's work on files in the folder.
#include <utility>

#include "base/check.h"
#include "runtime/scheduler/scheduler_memory.h"
#include "runtime/store/session_notes.h"
#include "runtime/store/session_store.h"

namespace winnow::runtime {
namespace {

// Share of the gap between tokens for a part of a scan: half of what the commands of a round may
// take together (kCommandShare).
constexpr double kScanShare = 0.05;

std::string NotesFrom(const IdleSession& session) {
  return NotesText({.unread = session.unread, .outline = session.outline});
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

void SessionStore::IndexText(const std::string& file, SessionInput& input) {
  const auto text = ReadSessionText(input);
  if (!text || text->info.model != engine_.model_hash()) return;
  const auto options = SessionOptionsFrom(text->info);
  if (options) saved_prefixes_.Set(file, *options, text->tokens, text->has_logits);
}

void SessionStore::IndexText(const std::string& file, const Session& session) {
  saved_prefixes_.Set(file, session.options(), session.tokens(), !session.logits().empty());
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

void SessionStore::FileRemoved(const std::string& file) {
  FileChanged(file);
  files_.erase(file);
}

void SessionStore::FileChanged(const std::string& file) {
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
  files_.insert(file);
  IndexText(file, *session.session);
  if (IdleSession* idle = Find(session.name); idle == &session && file == session.name) {
    idle->saved = true;
  }
  return {};
}

SessionStore::Saving SessionStore::BeginSave(const IdleSession& session, const std::string& file,
                                             Durability durability) {
  WINNOW_CHECK(folder_ != nullptr);
  auto write = [folder = folder_, file, durability, notes = NotesFrom(session),
                session = session.session.get()]() -> std::optional<RequestError> {
    auto output = folder->Write(file);
    if (!output) return RequestError{ErrorKind::kInternal, output.error().message};
    const auto saved = SaveSession(*session, std::move(output).value(), notes, durability);
    if (!saved) return RequestError{ErrorKind::kInternal, saved.error().message};
    return std::nullopt;
  };
  Saving saving = {.session = session.session.get(),
                   .file = file,
                   .is_own_file = session.name == file,
                   .write = std::move(write)};
  BeginFileWork(file);
  try {
    saving_[saving.session].files.insert(file);
  } catch (const std::exception&) {
    EndFileWork(file);
    const auto found = saving_.find(saving.session);
    if (found != saving_.end() && found->second.files.empty()) saving_.erase(found);
    throw;
  }
  return saving;
}

bool SessionStore::saving_to(const IdleSession& session, const std::string& file) const {
  const auto found = saving_.find(session.session.get());
  return found != saving_.end() && found->second.files.contains(file) &&
         file_work_.count(file) == 1 && found->second.evicting_bytes == 0;
}

void SessionStore::EndSave(const Saving& saving, bool is_written) {
  FileChanged(saving.file);
  EndFileWork(saving.file);
  // First the part that cannot throw. A session that has left ends with `ended`.
  const auto found = saving_.find(saving.session);
  WINNOW_CHECK(found != saving_.end());
  found->second.files.erase(found->second.files.find(saving.file));
  decltype(saving_)::node_type ended;
  if (found->second.files.empty()) {
    leaving_bytes_ -= found->second.bytes;
    ended = saving_.extract(found);
  }
  if (!is_written) return;
  // A session that was loaded from the file's earlier contents no longer matches the file.
  IdleSession* idle = Find(saving.file);
  if (idle != nullptr && idle->session.get() == saving.session) {
    idle->saved = saving.is_own_file;
  } else if (idle != nullptr && !saving.is_own_file && idle->saved && !idle->copied) {
    Drop(*idle);
  }
  files_.insert(saving.file);
  IndexText(saving.file, *saving.session);
}

void SessionStore::EndFileWork(const std::string& file) {
  const auto found = file_work_.find(file);
  WINNOW_CHECK(found != file_work_.end());
  file_work_.erase(found);
}

// Everything is read from one open file, because another file may replace it at any time.
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
    SessionNotes notes =
        ReadNotes(info.notes, info.n_tokens, engine_.model().hyperparameters().vocabulary);
    read->unread = std::move(notes.unread);
    read->outline = std::move(notes.outline);
    WINNOW_ASSIGN(read->session, RestoreSession(engine_, saved.options, std::move(input)));
    // Another process may overwrite the file in place meanwhile.
    return read->session->n_tokens() == info.n_tokens && IdleBytes(*read->session) <= max_bytes;
  };
  return [file, read_file]() -> std::optional<RequestError> {
    const Result<bool> is_same = read_file();
    if (!is_same) return RequestError{ErrorKind::kInvalid, is_same.error().message};
    if (*is_same) return std::nullopt;
    return RequestError{ErrorKind::kBusy, "session " + file + ": its file has changed; try again"};
  };
}

void SessionStore::SetUnread(std::span<const TokenId> unread, SessionTokens& text) const {
  text.ended = !unread.empty() && engine_.tokenizer().IsEndOfGeneration(unread.back());
  text.unread.assign(unread.begin(), unread.end() - (text.ended ? 1 : 0));
}

SessionStore::FileTask SessionStore::MakeTextReader(const std::string& file,
                                                    std::shared_ptr<SessionTokens> read) const {
  WINNOW_CHECK(folder_ != nullptr);
  const auto read_file = [this, file, read = std::move(read)]() -> Result<void> {
    WINNOW_ASSIGN(SessionInput input, folder_->Read(file));
    WINNOW_ASSIGN(SessionText text, ReadSessionText(input));
    if (text.info.model != engine_.model_hash()) {
      return Error{"session " + file + " was saved with another model"};
    }
    SessionNotes notes = ReadNotes(text.info.notes, text.info.n_tokens,
                                   engine_.model().hyperparameters().vocabulary);
    read->tokens = std::move(text.tokens);
    SetUnread(notes.unread, *read);
    read->outline = std::move(notes.outline);
    return {};
  };
  return [read_file]() -> std::optional<RequestError> {
    const auto done = read_file();
    if (done) return std::nullopt;
    // If the file cannot be read, the request itself is not invalid.
    return RequestError{ErrorKind::kNotFound, done.error().message};
  };
}

bool SessionStore::Continue(FolderScan& scan) {
  if (folder_ == nullptr) return true;
  const Clock::TimePoint start = clock_.now();
  if (!scan.left) {
    scan.left = folder_->List();
    files_ = {scan.left->begin(), scan.left->end()};
  }
  const double max_ms = kScanShare * options_.max_token_gap_ms;
  while (!scan.left->empty()) {
    FindHead(scan.left->back());
    scan.left->pop_back();
    if (Milliseconds(start, clock_.now()) >= max_ms) break;
  }
  return scan.left->empty();
}

std::optional<SessionInfo> SessionStore::DescribeFile(const std::string& file,
                                                      const Head* head) const {
  if (head == nullptr || !head->info) return std::nullopt;
  SessionInfo info = {.id = file, .on_disk = true};
  info.file_bytes = head->version.n_bytes;
  info.n_tokens = head->info->n_tokens;
  if (head->info->model == engine_.model_hash()) {
    const int64_t token_bytes = engine_.model().cache_shape().f16_bytes_per_token();
    info.cache.bytes_full_f16 = info.n_tokens * token_bytes;
  }
  info.cache.method = head->info->method.empty() ? "full" : head->info->method;
  info.cache.n_seen = info.n_tokens;
  return info;
}

}  // namespace winnow::runtime
