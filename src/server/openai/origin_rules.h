#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "server/openai/api_error.h"
#include "server/openai/exchange.h"
#include "server/openai/options.h"

namespace winnow::server {

// Decides which web pages may use the server through a browser: its own, and those of the allowed
// origin. Programs send no origin and are always allowed.
class OriginRules {
 public:
  // `cors_origin`: see ServiceOptions. `checks_host`: every program on the machine is trusted, so a
  // host name that its owner has pointed at this machine (DNS rebinding) must not count as the
  // server's own.
  OriginRules(std::string cors_origin, bool checks_host, const ServiceOptionNames& words)
      : cors_origin_(std::move(cors_origin)), checks_host_(checks_host), words_(words) {}

  // The origin whose pages may read the response, for CORS; empty: none but the server's own.
  std::string Allowed(const HttpRequest& request) const;

  enum class Access {
    kRead,         // public data
    kReadPrivate,  // what clients have written
    kChange,       // everything else
  };
  // Why the page that sent the request is refused. nullopt: allowed, or sent by a program.
  std::optional<ApiError> Check(const HttpRequest& request, Access access) const;

 private:
  bool IsKnownHost(std::string_view host) const;

  std::string cors_origin_;
  bool checks_host_;
  ServiceOptionNames words_;
};

}  // namespace winnow::server
