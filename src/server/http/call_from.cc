#include "server/http/call_from.h"

#include <string>
#include <utility>

#include "server/http/url.h"

namespace winnow::server {

Call CallFrom(const boost::beast::http::request_header<>& header) {
  Call call = {.method = std::string(header.method_string())};
  if (auto target = ParseTarget({header.target().data(), header.target().size()})) {
    call.path = std::move(target->path);
    call.query = std::move(target->query);
  }
  for (const auto& field : header) {
    const auto name = field.name_string();
    call.headers.emplace_back(LowerCase({name.data(), name.size()}), std::string(field.value()));
  }
  return call;
}

}  // namespace winnow::server
