#include "server/scheduler_backend.h"

#include <utility>

#include "server/openai/context.h"

namespace winnow::server {

std::variant<Backend::Submitted, runtime::RequestError> SchedulerBackend::Submit(
    runtime::Request request) {
  auto outcome = scheduler_.Submit(std::move(request));
  if (auto* error = std::get_if<runtime::RequestError>(&outcome)) return std::move(*error);
  auto ticket = std::get<runtime::Ticket>(std::move(outcome));
  const uint64_t id = ticket.id();
  return Submitted{id, [ticket]() mutable { ticket.Cancel(); }};
}

void SchedulerBackend::CreateSession(const std::string& id, runtime::Request document,
                                     const SessionDone& done) {
  scheduler_.CreateSession(id, std::move(document), done);
}
void SchedulerBackend::ForkSession(const std::string& from, const std::string& to,
                                   const SessionDone& done) {
  scheduler_.ForkSession(from, to, done);
}
void SchedulerBackend::SaveSession(const std::string& id, const std::string& name,
                                   const SessionDone& done) {
  scheduler_.SaveSession(id, name, done);
}
void SchedulerBackend::RestoreSession(const std::string& id, const std::string& name,
                                      const SessionDone& done) {
  scheduler_.RestoreSession(id, name, done);
}
void SchedulerBackend::DeleteSession(const std::string& id, const SessionDone& done) {
  scheduler_.DeleteSession(id, done);
}
void SchedulerBackend::ListSessions(
    const std::function<void(std::vector<runtime::SessionInfo>)>& done) {
  scheduler_.ListSessions(done);
}
void SchedulerBackend::FindSession(const std::string& id, const SessionDone& done) {
  scheduler_.FindSession(id, done);
}
void SchedulerBackend::ReadTokens(const std::string& id, const TokensDone& done) {
  scheduler_.ReadTokens(id, done);
}
void SchedulerBackend::KeptPositions(const std::string& id, bool by_head, const KeptDone& done) {
  scheduler_.KeptPositions(id, by_head, done);
}

ModelInfo MakeModelInfo(runtime::Engine& engine, const std::string& name, int64_t context) {
  const model::Hyperparameters& h = engine.model().hyperparameters();
  return {.name = name,
          .path = engine.file().path(),
          .architecture = h.architecture,
          .n_parameters = engine.model().n_parameters(),
          .n_bytes = engine.file().file_bytes(),
          .context = context > 0 ? context : engine.model().context(),
          .trained_context = h.trained_context,
          .embedding = h.embedding,
          .n_layers = h.n_layers,
          .n_kv_heads = engine.model().cache_shape().n_kv_heads,
          .created = UnixTime()};
}

}  // namespace winnow::server
