#include "runtime/store/session_store.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "runtime/scheduler/scheduler_memory.h"
#include "runtime/scheduler/scheduler_sequence.h"

namespace winnow::runtime {
namespace {

int64_t CommonLength(std::span<const TokenId> a, std::span<const TokenId> b) {
  return std::mismatch(a.begin(), a.end(), b.begin(), b.end()).first - a.begin();
}

// How long a session that could not be written is not evicted.
constexpr auto kRetryAfter = std::chrono::seconds(10);

// A save that has not written for so long was killed.
constexpr auto kAbandonedAfter = std::chrono::hours(1);

SessionInfo DescribeIdle(const IdleSession& session, Clock::TimePoint now) {
  return {.id = session.name,
          .n_tokens = session.session->n_tokens(),
          .cache = ReportCache(*session.session),
          .busy = session.copied,
          .idle_seconds = std::chrono::duration<double>(now - session.used).count()};
}

}  // namespace

SessionStore::SessionStore(Engine& engine, const SchedulerOptions& options,
                           const SessionFolder* folder, SessionNames& names, Log& log,
                           const Clock& clock)
    : engine_(engine), options_(options), folder_(folder), names_(names), log_(log), clock_(clock) {
  if (folder_ == nullptr) return;
  if (const int n = folder_->RemoveAbandoned(kAbandonedAfter); n > 0) {
    log_.Info("removed " + std::to_string(n) + " temporary files of interrupted saves");
  }
  for (const std::string& file : folder_->List()) {
    files_.insert(file);
    if (auto input = folder_->Read(file)) IndexText(file, *input);
  }
}

IdleSession* SessionStore::Find(const std::string& name) {
  const auto found = std::ranges::find_if(
      sessions_, [&](const IdleSession& session) { return session.name == name; });
  return found == sessions_.end() || name.empty() ? nullptr : &*found;
}

void SessionStore::Put(IdleSession session) {
  std::unique_ptr<Session> taken = std::move(session.session);
  Put(std::move(session), std::move(taken));
}

void SessionStore::Put(IdleSession idle, std::unique_ptr<Session>&& session) {
  idle.bytes = IdleBytes(*session);
  std::list<IdleSession> one;
  one.push_back(std::move(idle));
  if (IdleSession* old = Find(one.front().name)) Drop(*old);
  one.front().session = std::move(session);
  bytes_ += one.front().bytes;
  sessions_.splice(sessions_.end(), one);
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
    // On a tie, prefer an unnamed session, which need not be copied.
    if (n > best.match.n_tokens || (n == best.match.n_tokens && n > 0 && idle.name.empty())) {
      best = {.idle = &idle, .match = match};
    }
  }
  return best;
}

bool SessionStore::CanEvict(const IdleSession& session, const EvictionFilter& spared) const {
  if (&session == spared.session || session.copied || saving(session)) return false;
  if (file_work_.contains(session.name) || session.no_evict_until > clock_.now()) return false;
  // A session that a request waits for may be written and read from disk again, but must not be
  // lost.
  return session.name.empty() || !names_.busy(session.name) ||
         (folder_ != nullptr && !spared.claimed);
}

void SessionStore::EndCopies() {
  for (IdleSession& session : sessions_) session.copied = false;
}

int64_t SessionStore::EvictableBytes(const EvictionFilter& spared) const {
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

IdleSession* SessionStore::Oldest(const EvictionFilter& spared) {
  IdleSession* oldest = nullptr;
  for (IdleSession& session : sessions_) {
    if (!CanEvict(session, spared)) continue;
    if (oldest == nullptr || session.used < oldest->used) oldest = &session;
  }
  return oldest;
}

SessionStore::Eviction SessionStore::Evict(const EvictionFilter& spared) {
  IdleSession* session = Oldest(spared);
  // Without a folder the session is lost, and a request may have claimed it meanwhile: then try the
  // next.
  while (session != nullptr && !session->name.empty() && folder_ == nullptr &&
         !names_.Close(session->name)) {
    session = Oldest(spared);
  }
  if (session == nullptr) return {};
  if (!session->name.empty() && folder_ != nullptr && !session->saved) {
    // The file must survive the process, not a power failure, so do not wait for the disk, unless
    // it replaces a file that is safely on disk.
    const Durability durability =
        HasFile(session->name) ? Durability::kOnDisk : Durability::kWritten;
    Eviction leaves = {.kind = Eviction::Kind::kLeaves,
                       .saving = BeginSave(*session, session->name, durability)};
    saving_.at(session->session.get()).evicting_bytes = session->bytes;
    return leaves;
  }
  const IdleSession gone = Take(*session);
  if (!gone.name.empty() && folder_ == nullptr) {
    log_.Info("session " + gone.name + " was closed: its memory is needed");
  }
  return {.kind = Eviction::Kind::kGone};
}

void SessionStore::EndEvict(const Saving& saving, const RequestError* error) {
  saving_.at(saving.session).evicting_bytes = 0;
  const auto found = std::ranges::find_if(sessions_, [&](const IdleSession& session) {
    return session.session.get() == saving.session;
  });
  const bool is_there = found != sessions_.end();  // false: deleted or replaced meanwhile
  EndSave(saving, error == nullptr);
  if (!is_there) return;
  if (error != nullptr) {
    log_.Warning("session " + found->name + " stays in memory: " + error->message);
    found->no_evict_until = clock_.now() + kRetryAfter;
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

std::optional<SessionInfo> SessionStore::Describe(const std::string& name,
                                                  Clock::TimePoint now) const {
  for (const IdleSession& session : sessions_) {
    if (session.name == name && !name.empty()) return DescribeIdle(session, now);
  }
  return DescribeFile(name, FindHead(name));
}

std::vector<SessionInfo> SessionStore::List(Clock::TimePoint now) const {
  std::vector<SessionInfo> list;
  std::set<std::string> in_memory;
  for (const IdleSession& session : sessions_) {
    if (session.name.empty()) continue;
    list.push_back(DescribeIdle(session, now));
    in_memory.insert(session.name);
  }
  for (const std::string& file : files_) {
    if (in_memory.contains(file)) continue;
    const auto known = heads_.find(file);
    const Head* head = known == heads_.end() ? FindHead(file) : &known->second;
    if (auto info = DescribeFile(file, head)) list.push_back(*std::move(info));
  }
  std::erase_if(heads_, [&](const auto& head) { return !files_.contains(head.first); });
  return list;
}

}  // namespace winnow::runtime
