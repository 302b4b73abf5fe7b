#pragma once

#include <boost/beast/http/message.hpp>

#include "server/openai/exchange.h"

namespace winnow::server {

// A request without its body. The path is empty where the target is none.
Call CallFrom(const boost::beast::http::request_header<>& header);

}  // namespace winnow::server
