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

// The protocol. Each request gets exactly one response through its exchange. Thread-safe.
class Service {
 public:
  explicit Service(ServiceOptions options);
  ~Service();

  // Before this call, all but /health, the page and OPTIONS is a 503. Backend and prompts must
  // outlive the service. `sampler`: defaults of requests. `constraints`, made from the model's
  // vocabulary, replaces that of the options unless null.
  void SetReady(Backend& backend, const chat::PromptWriter& prompts,
                const runtime::SamplerConfig& sampler,
                std::shared_ptr<const ConstraintFactory> constraints = nullptr);
  // From now on /health is 503, so that load balancers choose another replica. Also calls Stop.
  void SetDraining();
  // Refuses the requests whose schemas are not compiled yet. Call it before the exchanges end.
  void Stop();

  // Never throws; an internal failure is a 500.
  void Handle(const HttpRequest& request, ExchangePtr exchange);
  // Why the page or program that sends this is refused: its origin, or no key. The body is not
  // needed. nullopt: allowed.
  std::optional<ApiError> CheckHead(const HttpRequest& head) const;
  // Answers a request that was not read to its end.
  void Refuse(const HttpRequest& head, ExchangePtr exchange, const ApiError& error);

  Metrics& metrics() { return metrics_; }

 private:
  struct Route;
  struct Match;
  static const Route* FindRoute(const std::string& path, std::string* id);
  void Dispatch(const Route& route, const HttpRequest& request, const ExchangePtr& exchange,
                const std::string& id);
  void Health(Exchange& exchange);
  bool IsKey(std::string_view key) const;
  bool HasKey(const HttpRequest& request) const;
  bool IsForAll(const HttpRequest& request) const;
  ExchangePtr WithCors(const HttpRequest& request, ExchangePtr exchange) const;
  void SendPage(const HttpRequest& request, Exchange& exchange);

  ServiceOptions options_;
  OriginRules origins_;
  std::vector<std::string> key_hashes_;
  Metrics metrics_;
  IdSource ids_;
  std::unique_ptr<ConstraintQueue> constraints_;
  std::unique_ptr<Context> context_owner_;
  std::atomic<Context*> context_{nullptr};  // null while the model loads
  std::atomic<bool> draining_{false};
};

}  // namespace winnow::server
