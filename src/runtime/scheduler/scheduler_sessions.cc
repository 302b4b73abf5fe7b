#include "runtime/scheduler/scheduler_sessions.h"

#include <algorithm>
#include <exception>
#include <utility>

namespace winnow::runtime {
namespace {

RequestError NotInMemory(const std::string& id) {
  return {ErrorKind::kNotFound, "session " + id + " is neither in memory nor saved"};
}

RequestError ToBeRead(const std::string& file) {
  return {ErrorKind::kBusy, "the file of session " + file + " is waiting to be read; try again"};
}

KeptTokens Kept(const Session& session, int64_t n_document, bool by_head) {
  const cache::Cache& cache = session.cache();
  const cache::CacheShape& shape = cache.config().shape;
  KeptTokens kept = {.tokens = {session.tokens().begin(), session.tokens().end()},
                     .n_layers = shape.n_layers,
                     .n_kv_heads = shape.n_kv_heads,
                     .n_document = n_document};
  kept.share.resize(kept.tokens.size());
  const float part = 1.0f / static_cast<float>(shape.n_kv_heads_in_all());
  for (int layer = 0; layer < shape.n_layers; ++layer) {
    for (int head = 0; head < shape.layer(layer).n_kv_heads; ++head) {
      const auto positions = cache.positions(layer, head);
      for (const cache::Position position : positions) {
        if (static_cast<size_t>(position) < kept.share.size()) {
          kept.share[static_cast<size_t>(position)] += part;
        }
      }
      if (!by_head) continue;
      kept.by_head.emplace_back(positions.begin(), positions.end());
      std::ranges::sort(kept.by_head.back());
    }
    if (by_head) kept.by_head.resize(static_cast<size_t>((layer + 1) * shape.n_kv_heads));
  }
  return kept;
}

SessionInfo DescribeRunning(const Sequence& sequence) {
  return {.id = sequence.job().session,
          .n_tokens = sequence.session().n_tokens(),
          .cache = ReportCache(sequence.session()),
          .busy = true};
}

}  // namespace

NamedSessions::SessionOutcome NamedSessions::Describe(const std::string& id) const {
  const IdleSession* idle = store_.Find(id);
  if (idle == nullptr) return NotInMemory(id);
  return SessionInfo{.id = id,
                     .n_tokens = idle->session->n_tokens(),
                     .cache = ReportCache(*idle->session),
                     .busy = idle->copied};
}

void NamedSessions::Load(const std::string& id, const Then& then) {
  if (store_.Find(id) != nullptr) return then(nullptr);
  ReadOnce(id, id, then);
}

void NamedSessions::ReadOnce(const std::string& id, const std::string& file, const Then& then) {
  const std::pair key(id, file);
  const Then end = [this, key](const RequestError* error) {
    const auto found = loading_.extract(key);
    if (found.empty()) return;
    for (const Then& one : found.mapped()) {
      Try(context_.log, "session", key.second, [&] { one(error); });
    }
  };
  const auto [waiting, is_first] = loading_.try_emplace(key);
  try {
    waiting->second.push_back(then);
    if (is_first) ReadFile(id, file, /*replaces=*/false, end);
  } catch (const std::exception&) {
    if (is_first) loading_.erase(key);
    throw;
  }
}

void NamedSessions::ReadFile(const std::string& id, const std::string& file, bool replaces,
                             const Then& then) {
  const auto refuse = [&](ErrorKind kind, std::string message) {
    const RequestError error = {kind, std::move(message)};
    then(&error);
  };
  if (!store_.HasFile(file)) {
    return refuse(ErrorKind::kNotFound, "there is no saved session " + file);
  }
  const auto max_bytes = store_.ReadMaxBytes(file);
  if (!max_bytes) return refuse(ErrorKind::kInvalid, max_bytes.error().message);
  // Before memory is freed: the session of this name is then not evicted, which would overwrite the
  // file before it is read.
  const auto work = std::make_shared<FileWork>(store_, file);
  ReadWhenMemoryIsFree({.id = id,
                        .file = file,
                        .work = work,
                        .replaces = replaces,
                        .max_bytes = *max_bytes,
                        .then = then});
}

void NamedSessions::ReadWhenMemoryIsFree(const FileRead& read) {
  if (!memory_.Free(read.max_bytes, {.session = store_.Find(read.id), .claimed = true})) {
    if (memory_.will_be_freed(/*n_own=*/1) && memory_.fits_alone(read.max_bytes)) {
      return memory_.WaitToRead(read.file, [this, read] {
        const auto failed =
            Try(context_.log, "session", read.file, [&] { ReadWhenMemoryIsFree(read); });
        if (!failed) return;
        read.work->End();
        read.then(&*failed);
      });
    }
    read.work->End();
    const RequestError error = memory_.OutOfMemory("session " + read.file, read.max_bytes, 0);
    return read.then(&error);
  }
  const auto idle = std::make_shared<IdleSession>();
  const auto end = [this, read, idle](const RequestError* error) {
    read.work->End();
    memory_.EndReading(read.max_bytes);
    if (error != nullptr) return read.then(error);
    const auto failed =
        Try(context_.log, "session", read.file, [&] { PutRead(read, std::move(*idle)); });
    read.then(failed ? &*failed : nullptr);
  };
  context_.queue_file_task(store_.MakeReader(read.file, read.max_bytes, idle), end);
  memory_.AddReading(read.max_bytes);
}

void NamedSessions::PutRead(const FileRead& read, IdleSession idle) {
  if (!read.replaces && store_.Find(read.id) != nullptr) return;
  idle.name = read.id;
  if (read.id.empty()) idle.read_from = read.file;
  idle.saved = read.id == read.file;
  idle.used = context_.clock.now();
  store_.Put(std::move(idle));
  store_.DropUnnamed(context_.options.max_unnamed);
}

std::variant<SessionStore::Saving, RequestError> NamedSessions::BeginSave(const std::string& id,
                                                                          const std::string& file) {
  const IdleSession& idle = *store_.Find(id);
  if (memory_.waits_to_be_read(file)) return ToBeRead(file);
  if (file != id) {
    const IdleSession* other = store_.Find(file);
    if (context_.names.busy(file) || (other != nullptr && !other->saved)) {
      return RequestError{ErrorKind::kBusy,
                          "session " + file +
                              " is in use, or has changed since it was saved, and this file would "
                              "replace it. Save or delete it first, or choose another name"};
    }
  }
  if (!store_.saving_to(idle, file)) return store_.BeginSave(idle, file);
  return RequestError{ErrorKind::kBusy,
                      "session " + id + " is being saved to " + file + " already"};
}

void NamedSessions::BeginSaves() {
  saves_on_end_ = true;
  std::vector<std::string> names;
  for (const IdleSession& session : store_.sessions()) names.push_back(session.name);
  for (const std::string& name : names) SaveIfChanged(name);
}

// Sessions that are not written here are left to SaveAll, which logs why it cannot save them.
void NamedSessions::SaveIfChanged(const std::string& id) {
  const IdleSession* idle = store_.Find(id);
  if (context_.options.session_path.empty() || idle == nullptr || idle->copied || idle->saved)
    return;
  Try(context_.log, "session", id, [&] { Save(id, id, {}); });
}

std::optional<RequestError> NamedSessions::Save(const std::string& id, const std::string& file,
                                                const Then& then) {
  const auto begun = BeginSave(id, file);
  if (const auto* refused = std::get_if<RequestError>(&begun)) return *refused;
  const auto& saving = std::get<SessionStore::Saving>(begun);
  try {
    context_.queue_file_task(saving.write, [this, saving, then](const RequestError* error) {
      const auto failed = Try(context_.log, "session", saving.file,
                              [&] { store_.EndSave(saving, error == nullptr); });
      if (then) then(error == nullptr && failed ? &*failed : error);
    });
  } catch (const std::exception&) {  // the store counts it as begun
    store_.EndSave(saving, /*is_written=*/false);
    throw;
  }
  return std::nullopt;
}

void NamedSessions::SaveAll() {
  if (context_.options.session_path.empty()) return;
  for (const IdleSession& session : store_.sessions()) {
    if (session.name.empty() || session.saved) continue;
    Try(context_.log, "session", session.name, [&] {
      const auto saved = store_.Save(session, session.name);
      if (saved) return;
      context_.log.Error("session " + session.name + " is not saved: " + saved.error().message);
    });
  }
}

void NamedSessions::Fork(const std::string& from, const std::string& to, const Then& then) {
  Load(from, [this, from, to, then](const RequestError* error) {
    if (error != nullptr) return then(error);
    std::variant<bool, RequestError> put = true;
    const auto failed =
        Try(context_.log, "a copy of session", from, [&] { put = PutFork(from, to, then); });
    if (failed) put = *failed;
    if (const auto* refused = std::get_if<RequestError>(&put)) return then(refused);
    if (std::get<bool>(put)) then(nullptr);
  });
}

std::variant<bool, RequestError> NamedSessions::PutFork(const std::string& from,
                                                        const std::string& to, const Then& then) {
  IdleSession* idle = store_.Find(from);
  if (!memory_.Free(idle->bytes, {.session = idle, .claimed = true})) {
    if (!memory_.will_be_freed() || !memory_.fits_alone(2 * idle->bytes)) {
      return memory_.OutOfMemory("a copy of session " + from, idle->bytes,
                                 /*n_beside=*/idle->bytes);
    }
    memory_.Wait([this, from, to, then] {
      const auto failed =
          Try(context_.log, "a copy of session", from, [&] { Fork(from, to, then); });
      if (failed) then(&*failed);
    });
    return false;
  }
  idle->used = context_.clock.now();
  auto session = idle->session->Fork();
  if (!session) return RequestError{ErrorKind::kInternal, session.error().message};
  store_.Put({.name = to,
              .session = std::move(*session),
              .unread = idle->unread,
              .outline = idle->outline,
              .used = context_.clock.now()});
  return true;
}

NamedSessions::SessionOutcome NamedSessions::FindToDelete(const std::string& id) const {
  if (memory_.waits_to_be_read(id)) return ToBeRead(id);
  const auto info = store_.Describe(id, context_.clock.now());
  if (info) return *info;
  if (store_.HasFile(id)) return SessionInfo{.id = id};  // a damaged file can be deleted too
  return NotInMemory(id);
}

void NamedSessions::EndDelete(const std::string& id, bool is_removed) {
  if (!is_removed) return;
  store_.FileRemoved(id);
  store_.DropReadFrom(id);
  if (IdleSession* idle = store_.Find(id)) store_.Drop(*idle);
}

NamedSessions::SessionOutcome NamedSessions::Find(const std::string& id) const {
  if (const Sequence* sequence = id.empty() ? nullptr : active_.Find(id)) {
    return DescribeRunning(*sequence);
  }
  const auto info = store_.Describe(id, context_.clock.now());
  if (!info) return NotInMemory(id);
  return *info;
}

std::vector<SessionInfo> NamedSessions::List() const {
  std::vector<SessionInfo> list = store_.List(context_.clock.now());
  const auto add = [&](const Sequence& sequence) {
    const std::string& id = sequence.job().session;
    if (id.empty() || sequence.choice() != 0) return;
    const auto same = [&](const SessionInfo& info) { return info.id == id; };
    auto place = std::ranges::find_if(list, same);
    if (place == list.end()) place = list.insert(place, SessionInfo{.id = id});
    *place = DescribeRunning(sequence);
  };
  for (const auto& sequence : active_.running) add(*sequence);
  for (const PrefillEntry& reading : active_.in_prefill) {
    if (reading.sequence != nullptr) add(*reading.sequence);
  }
  std::ranges::sort(list, {}, &SessionInfo::id);
  return list;
}

void NamedSessions::ReadTokens(
    const std::string& id,
    const std::function<void(std::variant<SessionTokens, RequestError>)>& done) {
  if (active_.Find(id) != nullptr) {  // its text is about to change
    return done(RequestError{ErrorKind::kBusy, "session " + id + " is in use by another request"});
  }
  if (const IdleSession* idle = store_.Find(id)) {
    SessionTokens text = {
        .tokens = {idle->session->tokens().begin(), idle->session->tokens().end()},
        .outline = idle->outline};
    store_.SetUnread(idle->unread, text);
    return done(std::move(text));
  }
  if (!store_.HasFile(id)) return done(NotInMemory(id));
  const auto read = std::make_shared<SessionTokens>();
  const auto work = std::make_shared<FileWork>(store_, id);
  context_.queue_file_task(store_.MakeTextReader(id, read),
                           [work, read, done](const RequestError* error) {
                             work->End();
                             if (error != nullptr) return done(Copy(*error));
                             done(std::move(*read));
                           });
}

void NamedSessions::KeptPositions(
    const std::string& id, bool by_head,
    const std::function<void(std::variant<KeptTokens, RequestError>)>& done) {
  for (const auto& sequence : active_.running) {
    if (sequence->job().session == id && sequence->choice() == 0) {
      return done(Kept(sequence->session(), sequence->job().outline.n_document, by_head));
    }
  }
  // During prefill, layers hold different numbers of tokens. If the request works on a copy, show
  // the session as it was before.
  const auto is_read = [&](const PrefillEntry& reading) {
    return reading.sequence != nullptr && reading.sequence->job().session == id;
  };
  if (store_.Find(id) == nullptr && std::ranges::any_of(active_.in_prefill, is_read)) {
    return done(RequestError{ErrorKind::kBusy, "session " + id + " is being read"});
  }
  Load(id, [this, id, by_head, done](const RequestError* error) {
    if (error != nullptr) return done(Copy(*error));
    const IdleSession& idle = *store_.Find(id);
    std::variant<KeptTokens, RequestError> kept;
    const auto failed = Try(context_.log, "session", id,
                            [&] { kept = Kept(*idle.session, idle.outline.n_document, by_head); });
    if (failed) kept = Copy(*failed);
    done(std::move(kept));
  });
}

}  // namespace winnow::runtime
