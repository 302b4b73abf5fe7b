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

// Names of the options as the user wrote them ("--host"), for error messages.
struct HttpOptionNames {
  std::string_view host = "host";
  std::string_view port = "port";
  std::string_view key_file = "key_file";
  std::string_view cert_file = "cert_file";
};

struct HttpOptions {
  std::string host = "127.0.0.1";
  uint16_t port = 8080;        // 0: any free port
  int n_threads = 2;           // for requests with bodies; one more serves all others
  std::string key_file = {};   // TLS private key, PEM; needs cert_file
  std::string cert_file = {};  // TLS certificate chain, PEM; needs key_file
  size_t max_connections = 12000;
  size_t max_header_bytes = size_t{32} << 10;
  size_t max_body_bytes = size_t{32} << 20;
  size_t max_bodies_bytes = size_t{256} << 20;   // buffers of all large bodies being received
  size_t max_buffers_bytes = size_t{512} << 20;  // all other buffers of all connections
  // A connection's request and its responses each count only above this.
  size_t uncounted_buffer_bytes = size_t{16} << 10;
  // Of a stream that its client does not read; more closes the connection.
  size_t max_queue_bytes = size_t{1} << 20;
  size_t max_pipelined_bytes = size_t{256} << 10;  // read ahead while a response is made
  size_t large_body_bytes = size_t{64} << 10;  // bodies from here on leave one thread for others
  HttpOptionNames words = {};
  // Called before each connection is taken; if it throws, that connection is dropped.
  std::function<void()> on_connection = {};
  // Deadlines.
  std::chrono::milliseconds handshake{10'000};  // of TLS
  // To the first byte of the first request; for each request from there to the end of the header.
  std::chrono::milliseconds header{10'000};
  std::chrono::milliseconds body{60'000};   // from the end of the header to the end of the body
  std::chrono::milliseconds idle{300'000};  // between requests
  std::chrono::milliseconds write{60'000};  // of one write to the socket
  std::chrono::milliseconds linger{1'000};  // for the client to close its side after the server
  std::chrono::milliseconds hangup{1'000};  // between checks whether an unread client has gone
  std::chrono::milliseconds ping{15'000};   // silence in an event stream before a comment is sent
};

// Called with each request and its exchange, on the strand of that connection.
using Handler = std::function<void(const HttpRequest& request, ExchangePtr exchange)>;

inline void SendPlainRefusal(const HttpRequest& /*head*/, const ExchangePtr& exchange,
                             const ApiError& error) {
  exchange->Send({.status = error.status, .body = report::ToJson(ErrorRecord(error))});
}

// The application behind the sockets.
struct Handlers {
  Handler handle;
  // Called once a header has been read but not yet all of its body: why the request is refused, or
  // nullopt. If the whole request arrives at once, only `handle` sees it, and must check itself.
  std::function<std::optional<ApiError>(const HttpRequest& head)> check_head =
      [](const HttpRequest& /*head*/) { return std::optional<ApiError>(); };
  // Answers a request that was not read to its end. `head` is empty if its header is incomplete.
  std::function<void(const HttpRequest& head, const ExchangePtr& exchange, const ApiError& error)>
      refuse = SendPlainRefusal;
};

}  // namespace winnow::server
