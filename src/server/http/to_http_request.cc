#include "server/http/to_http_request.h"

#include <string>
#include <utility>

#include "server/http/url.h"

namespace winnow::server {

HttpRequest ToHttpRequest(const boost::beast::http::request_header<>& header) {
  HttpRequest request = {.method = std::string(header.method_string())};
  if (auto target = ParseTarget({header.target().data(), header.target().size()})) {
    request.path = std::move(target->path);
    request.query = std::move(target->query);
  }
  for (const auto& field : header) {
    const auto name = field.name_string();
    request.headers.emplace_back(LowerCase({name.data(), name.size()}), std::string(field.value()));
  }
  return request;
}

}  // namespace winnow::server
