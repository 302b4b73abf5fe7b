#pragma once

#include <string>

#include "runtime/scheduler/scheduler.h"
#include "server/openai/backend.h"

namespace winnow::server {

// The engine and its scheduler, for the protocol. Both must outlive it.
class SchedulerBackend final : public Backend {
 public:
  SchedulerBackend(runtime::Engine& engine, runtime::Scheduler& scheduler, ModelInfo model)
      : engine_(engine), scheduler_(scheduler), model_(std::move(model)) {}

  const ModelInfo& model() const override { return model_; }
  const tokenizer::Tokenizer& tokenizer() const override { return engine_.tokenizer(); }
  std::variant<Submitted, runtime::RequestError> Submit(runtime::Request request) override;
  runtime::SchedulerState state() const override { return scheduler_.state(); }
  void CreateSession(const std::string& id, runtime::Request document,
                     const SessionDone& done) override;
  void ForkSession(const std::string& from, const std::string& to,
                   const SessionDone& done) override;
  void SaveSession(const std::string& id, const std::string& name,
                   const SessionDone& done) override;
  void RestoreSession(const std::string& id, const std::string& name,
                      const SessionDone& done) override;
  void DeleteSession(const std::string& id, const SessionDone& done) override;
  void ListSessions(const std::function<void(std::vector<runtime::SessionInfo>)>& done) override;
  void FindSession(const std::string& id, const SessionDone& done) override;
  void ReadTokens(const std::string& id, const TokensDone& done) override;
  void KeptPositions(const std::string& id, bool by_head, const KeptDone& done) override;

 private:
  runtime::Engine& engine_;
  runtime::Scheduler& scheduler_;
  ModelInfo model_;
};

// Describes the model. `context`: maximum tokens of a sequence; 0: as trained.
ModelInfo MakeModelInfo(runtime::Engine& engine, const std::string& name, int64_t context);

}  // namespace winnow::server
