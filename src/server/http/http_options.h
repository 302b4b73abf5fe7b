#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "report/record.h"
#include "server/openai/api_error.h"
#include "server/openai/exchange.h"

namespace winnow::server {

// What the options are called where a user wrote them ("--host"), for messages.
struct HttpWords {
  std::string_view host = "host";
  std::string_view port = "port";
  std::string_view key_file = "key_file";
  std::string_view cert_file = "cert_file";
};

struct HttpOptions {
  std::string host = "127.0.0.1";
  uint16_t port = 8080;        // 0: any that is free
  int n_threads = 2;           // for requests with bodies; one more is left for all others
  std::string key_file = {};   // of TLS, PEM; both or none
  std::string cert_file = {};  // the chain
  size_t max_connections = 12000;
  size_t max_header_bytes = size_t{32} << 10;
  size_t max_body_bytes = size_t{32} << 20;
  size_t max_bodies_bytes = size_t{256} << 20;   // of buffers of all large bodies that come
  size_t max_buffers_bytes = size_t{512} << 20;  // of other buffers of all connections
  size_t free_buffer_bytes = size_t{16}
                             << 10;          // requests of one, and answers to it, count from here
  size_t max_queue_bytes = size_t{1} << 20;  // of answers that their client does not read
  size_t max_pipelined_bytes = size_t{256} << 10;  // read ahead of the current answer
  size_t large_body_bytes = size_t{64} << 10;      // from here on a thread is kept for smaller ones
  HttpWords words = {};
  std::function<void()> on_connection = {};  // before each is taken; what it throws drops it
  // Deadlines.
  std::chrono::milliseconds handshake{10'000};  // of TLS
  std::chrono::milliseconds header{10'000};     // to its first byte, of the first; to its last one
  std::chrono::milliseconds body{60'000};       // from the end of the header on
  std::chrono::milliseconds idle{300'000};      // between requests
  std::chrono::milliseconds write{60'000};      // of one piece of an answer
  std::chrono::milliseconds linger{1'000};      // until the client ends its side of a closed one
  std::chrono::milliseconds hangup{1'000};      // between looks whether an unread client has gone
  std::chrono::milliseconds ping{15'000};       // a comment in event streams that are silent
};

// Gets each request with its way back, on that connection's thread.
using Handler = std::function<void(const Call& call, ExchangePtr exchange)>;

inline void SendPlainRefusal(const Call& /*head*/, const ExchangePtr& exchange,
                             const ApiError& error) {
  exchange->Send({.status = error.status, .body = report::ToJson(ErrorRecord(error))});
}

// What is behind the sockets.
struct Handlers {
  Handler handle;
  // Why a request may not even send its body, of which nothing was read yet. nullopt: it may.
  std::function<std::optional<ApiError>(const Call& head)> check_head = [](const Call& /*head*/) {
    return std::optional<ApiError>();
  };
  // Answers a request that was not read to its end; `head` is empty where that is not known either.
  std::function<void(const Call& head, const ExchangePtr& exchange, const ApiError& error)> refuse =
      SendPlainRefusal;
};

}  // namespace winnow::server
