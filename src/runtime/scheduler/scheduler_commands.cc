// Named sessions, as commands to the loop.
#include <optional>
#include <string>
#include <utility>
#include <variant>

#include "runtime/scheduler/scheduler_data.h"

namespace winnow::runtime {
namespace {

RequestError NoFolder() {
  return {ErrorKind::kInvalid,
          "sessions are in memory only: there is no session path to save them to"};
}

RequestError InvalidName() {
  return {ErrorKind::kInvalid,
          "invalid session or file name: use 1 to 128 of A-Z a-z 0-9 . _ -, not starting with a "
          "dot"};
}

RequestError NotFound() { return {ErrorKind::kNotFound, "there is no such session"}; }

}  // namespace

// While draining, no file work may begin: clients that keep saving and loading would keep the
// scheduler from ever being idle.
std::optional<RequestError> Scheduler::Data::CheckDraining() {
  const std::lock_guard lock(mutex);
  if (draining) return ShuttingDown();
  return std::nullopt;
}

std::optional<RequestError> Scheduler::Data::CheckFileQueue() {
  if (auto ends = CheckDraining()) return ends;
  const int n = loop.n_file_work();
  if (n < options.max_waiting) return std::nullopt;
  return RequestError{ErrorKind::kQueueFull,
                      "the file queue is full: " + std::to_string(n) +
                          " files are waiting to be read or written; try again later"};
}

void Scheduler::ForkSession(const std::string& from, const std::string& to,
                            const SessionDone& done) {
  Data& data = *data_;
  data.PostCall(
      [&data, from, to, done] {
        if (auto ends = data.CheckDraining()) return done(*ends);
        if (data.loop.sessions().IsOnlyInFile(from)) {
          if (auto full = data.CheckFileQueue()) return done(*full);
        }
        const auto claim_from = std::make_shared<SessionClaim>(data.names);
        const auto claim_to = std::make_shared<SessionClaim>(data.names);
        if (auto refused = data.ClaimExisting(from, *claim_from)) return done(*refused);
        if (auto refused = data.ClaimNew(to, *claim_to)) {
          claim_from->Release(true);
          return done(*refused);
        }
        data.loop.sessions().Fork(from, to, [=, &data](const RequestError* error) {
          claim_from->Release(true);
          claim_to->Release(error == nullptr);
          done(error != nullptr ? Copy(*error) : data.Describe(to));
        });
      },
      done);
}

void Scheduler::SaveSession(const std::string& id, const std::string& name,
                            const SessionDone& done) {
  Data& data = *data_;
  data.PostCall(
      [&data, id, name, done] {
        if (data.folder == nullptr) return done(NoFolder());
        if (!IsSessionName(name)) return done(InvalidName());
        if (auto full = data.CheckFileQueue()) return done(*full);
        const auto claim = std::make_shared<SessionClaim>(data.names);
        if (auto refused = data.ClaimExisting(id, *claim)) return done(*refused);
        data.loop.sessions().Load(id, [&data, id, name, claim, done](const RequestError* error) {
          claim->Release(true);
          if (error != nullptr) return done(Copy(*error));
          std::optional<RequestError> refused;
          auto thrown = data.Guard([&] {
            refused = data.loop.sessions().Save(
                id, name, [saved = data.Describe(id), done](const RequestError* failed) mutable {
                  done(failed != nullptr ? Copy(*failed) : std::move(saved));
                });
          });
          if (thrown) refused = std::move(thrown);
          if (refused) done(std::move(*refused));
        });
      },
      done);
}

Scheduler::SessionOutcome Scheduler::Data::Describe(const std::string& id) {
  SessionOutcome outcome;
  auto thrown = Guard([&] { outcome = loop.sessions().Describe(id); });
  if (thrown) outcome = std::move(*thrown);
  return outcome;
}

void Scheduler::RestoreSession(const std::string& id, const std::string& name,
                               const SessionDone& done) {
  Data& data = *data_;
  data.PostCall(
      [&data, id, name, done] {
        if (data.folder == nullptr) return done(NoFolder());
        if (!IsSessionName(name) || !IsSessionName(id)) return done(InvalidName());
        if (auto full = data.CheckFileQueue()) return done(*full);
        const bool existed = data.loop.sessions().Has(id) || data.folder->Has(id);
        const auto claim = std::make_shared<SessionClaim>(data.names);
        if (claim->TakeAny(id, existed) == SessionNames::Outcome::kBusy) {
          return done(
              RequestError{ErrorKind::kBusy, "session " + id + " is in use by another request"});
        }
        const auto end = [&data, id, existed, claim, done](const RequestError* error) {
          claim->Release(existed || error == nullptr);
          done(error != nullptr ? Copy(*error) : data.Describe(id));
        };
        data.loop.sessions().Restore(id, name, end);
      },
      done);
}

void Scheduler::DeleteSession(const std::string& id, const SessionDone& done) {
  Data& data = *data_;
  data.PostCall(
      [&data, id, done] {
        if (auto ends = data.CheckDraining()) return done(*ends);
        const auto claim = std::make_shared<SessionClaim>(data.names);
        if (auto refused = data.ClaimExisting(id, *claim)) return done(*refused);
        SessionOutcome found = data.loop.sessions().FindToDelete(id);
        if (const auto* error = std::get_if<RequestError>(&found)) {
          claim->Release(error->kind != ErrorKind::kNotFound);
          return done(found);
        }
        const auto work = data.loop.sessions().BeginDelete(id);
        if (data.folder == nullptr) {
          work->End();
          data.loop.sessions().EndDelete(id, true);
          claim->Release(false);
          return done(found);
        }
        // The removal is queued after saves to this file.
        const auto remove = [&data, id]() -> std::optional<RequestError> {
          const auto removed = data.folder->Remove(id);
          if (removed) return std::nullopt;
          return RequestError{ErrorKind::kInternal, removed.error().message};
        };
        const auto end = [&data, id, found, work, claim, done](const RequestError* error) mutable {
          work->End();
          data.loop.sessions().EndDelete(id, error == nullptr);
          claim->Release(error != nullptr);
          done(error != nullptr ? Copy(*error) : std::move(found));
        };
        data.AddFileWork(remove, end);
      },
      done);
}

void Scheduler::ListSessions(const std::function<void(std::vector<SessionInfo> sessions)>& done) {
  data_->List(std::make_shared<SessionStore::FolderScan>(), done);
}

void Scheduler::Data::List(const std::shared_ptr<SessionStore::FolderScan>& scan,
                           const std::function<void(std::vector<SessionInfo> sessions)>& done) {
  PostCall(
      [this, scan, done] {
        if (!loop.ContinueScan(*scan)) return List(scan, done);
        done(loop.sessions().List());
      },
      [done](const RequestError&) { done({}); });
}

void Scheduler::FindSession(const std::string& id, const SessionDone& done) {
  Data& data = *data_;
  data.PostCall(
      [&data, id, done] {
        if (!IsSessionName(id)) return done(NotFound());
        done(data.loop.sessions().Find(id));
      },
      done);
}

void Scheduler::ReadTokens(
    const std::string& id,
    const std::function<void(std::variant<SessionTokens, RequestError> tokens)>& done) {
  Data& data = *data_;
  data.PostCall(
      [&data, id, done] {
        if (!IsSessionName(id)) {
          return done(NotFound());
        }
        if (data.loop.sessions().IsOnlyInFile(id)) {
          if (auto full = data.CheckFileQueue()) return done(*full);
        }
        data.loop.sessions().ReadTokens(id, done);
      },
      done);
}

void Scheduler::KeptPositions(
    const std::string& id, bool by_head,
    const std::function<void(std::variant<KeptTokens, RequestError> kept)>& done) {
  Data& data = *data_;
  data.PostCall(
      [&data, id, by_head, done] {
        if (!IsSessionName(id)) {
          return done(NotFound());
        }
        if (data.loop.sessions().IsOnlyInFile(id)) {
          if (auto full = data.CheckFileQueue()) return done(*full);
        }
        data.loop.sessions().KeptPositions(id, by_head, done);
      },
      done);
}

}  // namespace winnow::runtime
