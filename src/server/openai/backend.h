#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <variant>
#include <vector>

#include "runtime/scheduler/scheduler_types.h"
#include "tokenizer/tokenizer.h"

namespace winnow::server {

// The model, as clients see it.
struct ModelInfo {
  std::string name = {};  // --alias, or from the file
  std::string path = {};
  std::string architecture = {};
  int64_t n_parameters = 0;
  int64_t n_bytes = 0;  // of the file
  int64_t context = 0;  // maximum tokens of a sequence
  int64_t trained_context = 0;
  int64_t embedding = 0;
  int n_layers = 0;
  int n_kv_heads = 0;
  int64_t created = 0;  // Unix time
};

// The engine as the protocol needs it: calls of the scheduler (runtime/scheduler/scheduler.h),
// behind an interface so that tests can replace it. Thread-safe.
class Backend {
 public:
  virtual ~Backend() = default;

  virtual const ModelInfo& model() const = 0;
  virtual const tokenizer::Tokenizer& tokenizer() const = 0;

  struct Submitted {
    uint64_t id = 0;
    std::function<void()> cancel = {};
  };
  virtual std::variant<Submitted, runtime::RequestError> Submit(runtime::Request request) = 0;
  virtual runtime::SchedulerState state() const = 0;

  using SessionDone =
      std::function<void(std::variant<runtime::SessionInfo, runtime::RequestError> outcome)>;
  virtual void CreateSession(const std::string& id, runtime::Request document,
                             const SessionDone& done) = 0;
  virtual void ForkSession(const std::string& from, const std::string& to,
                           const SessionDone& done) = 0;
  virtual void SaveSession(const std::string& id, const std::string& name,
                           const SessionDone& done) = 0;
  virtual void RestoreSession(const std::string& id, const std::string& name,
                              const SessionDone& done) = 0;
  virtual void DeleteSession(const std::string& id, const SessionDone& done) = 0;
  virtual void ListSessions(
      const std::function<void(std::vector<runtime::SessionInfo> sessions)>& done) = 0;
  virtual void FindSession(const std::string& id, const SessionDone& done) = 0;
  using TokensDone =
      std::function<void(std::variant<runtime::SessionTokens, runtime::RequestError> tokens)>;
  virtual void ReadTokens(const std::string& id, const TokensDone& done) = 0;
  using KeptDone =
      std::function<void(std::variant<runtime::KeptTokens, runtime::RequestError> kept)>;
  virtual void KeptPositions(const std::string& id, bool by_head, const KeptDone& done) = 0;
};

}  // namespace winnow::server
