#pragma once

#include <boost/beast/http/message.hpp>

#include "server/http/http_exchange.h"
#include "server/openai/exchange.h"

namespace winnow::server {

// The request without its body. The path is empty if the target is invalid.
HttpRequest ToHttpRequest(const boost::beast::http::request_header<>& header);

// The parts that the response depends on.
template <class Body>
ResponseOptions ResponseOptionsFrom(const boost::beast::http::request<Body>& request) {
  return {.is_head = request.method() == boost::beast::http::verb::head,
          .is_http_1_0 = request.version() < 11,
          .keep_alive = request.keep_alive()};
}

}  // namespace winnow::server
