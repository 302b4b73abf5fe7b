#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "server/openai/context.h"
#include "server/openai/exchange.h"
#include "server/openai/options.h"
#include "server/openai/origin_rules.h"

namespace winnow::server {

// The protocol: a request comes in, exactly one answer goes out through its exchange. Thread-safe.
class Service {
 public:
  explicit Service(ServiceOptions options);
  ~Service();

  // Until then all but /health, the page and OPTIONS is a 503. Backend and prompts outlive the
  // service; `sampler` is what a request that names nothing gets. `constraints`, made of the
  // model's vocabulary, replaces that of the options where it is there.
  void SetReady(Backend& backend, const chat::PromptWriter& prompts,
                const runtime::SamplerConfig& sampler,
                std::shared_ptr<const ConstraintFactory> constraints = nullptr);
  // From now on /health says 503, so that a balancer looks elsewhere.
  void SetDraining() { draining_ = true; }
  // Requests whose schemas are still to be compiled are refused. Before the exchanges end.
  void Stop();

  // Never throws; what goes wrong inside is a 500.
  void Handle(const Call& call, ExchangePtr exchange);
  // Why the page or program that sends this may not: its origin, or no key. The body is not looked
  // at. nullopt: it may.
  std::optional<ApiError> CheckHead(const Call& head) const;
  // Answers a request that was not read to its end.
  void Refuse(const Call& head, ExchangePtr exchange, const ApiError& error);

  Metrics& metrics() { return metrics_; }

 private:
  struct Route;
  struct Match;
  static const Route* FindRoute(const std::string& path, std::string* id);
  void Dispatch(const Route& route, const Call& call, const ExchangePtr& exchange,
                const std::string& id);
  void Health(Exchange& exchange);
  bool IsKey(std::string_view key) const;
  bool HasKey(const Call& call) const;
  bool IsForAll(const Call& call) const;
  ExchangePtr WithCors(const Call& call, ExchangePtr exchange) const;
  void SendPage(const Call& call, Exchange& exchange);

  ServiceOptions options_;
  OriginRules origins_;
  std::vector<std::string> key_hashes_;
  Metrics metrics_;
  IdSource ids_;
  std::unique_ptr<ConstraintQueue> constraints_;
  std::unique_ptr<Context> context_owner_;
  std::atomic<Context*> context_{nullptr};  // null: the model is being loaded
  std::atomic<bool> draining_{false};
};

}  // namespace winnow::server
