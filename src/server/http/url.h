#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "server/openai/exchange.h"

namespace winnow::server {

struct Target {
  std::string path;
  HttpRequest::Pairs query;
};

// The target of a request line, "/path?a=1&b=2", percent-decoded. nullopt: it does not begin with a
// slash, or has a broken escape or a NUL byte.
std::optional<Target> ParseTarget(std::string_view target);

// Converts ASCII letters only.
std::string LowerCase(std::string_view text);

}  // namespace winnow::server
