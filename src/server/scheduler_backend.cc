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

void SchedulerBackend::CreateSession(std::string id, runtime::Request document, SessionDone done) {
  scheduler_.CreateSession(std::move(id), std::move(document), std::move(done));
}
void SchedulerBackend::ForkSession(std::string from, std::string to, SessionDone done) {
  scheduler_.ForkSession(std::move(from), std::move(to), std::move(done));
}
void SchedulerBackend::SaveSession(std::string id, std::string name, SessionDone done) {
  scheduler_.SaveSession(std::move(id), std::move(name), std::move(done));
}
void SchedulerBackend::RestoreSession(std::string id, std::string name, SessionDone done) {
  scheduler_.RestoreSession(std::move(id), std::move(name), std::move(done));
}
void SchedulerBackend::DeleteSession(std::string id, SessionDone done) {
  scheduler_.DeleteSession(std::move(id), std::move(done));
}
void SchedulerBackend::ListSessions(std::function<void(std::vector<runtime::SessionInfo>)> done) {
  scheduler_.ListSessions(std::move(done));
}
void SchedulerBackend::KeptPositions(std::string id, bool by_head, KeptDone done) {
  scheduler_.KeptPositions(std::move(id), by_head, std::move(done));
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
