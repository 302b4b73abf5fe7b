#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "server/openai/api_error.h"
#include "server/openai/exchange.h"
#include "server/openai/options.h"

namespace winnow::server {

// Which pages in browsers may use the server: its own, and those of an origin that was allowed.
// Programs name no origin and may.
class OriginRules {
 public:
  // `cors_origin`: ServiceOptions. `checks_host`: the server trusts all of its machine. A page
  // whose host name leads here only because its owner has made it so (DNS rebinding) is not its own
  // then.
  OriginRules(std::string cors_origin, bool checks_host, const ServiceOptionNames& words)
      : cors_origin_(std::move(cors_origin)), checks_host_(checks_host), words_(words) {}

  // The origin that may read the answer; empty: that of no other page.
  std::string Allowed(const Call& call) const;

  enum class Access {
    kRead,         // what everybody may know
    kReadPrivate,  // what clients have written
    kChange,       // all that is no read
  };
  // Why the page that sends this may not; nullopt: it may, or it is a program that asks.
  std::optional<ApiError> Check(const Call& call, Access access) const;

 private:
  bool IsKnownHost(std::string_view host) const;

  std::string cors_origin_;
  bool checks_host_;
  ServiceOptionNames words_;
};

}  // namespace winnow::server
