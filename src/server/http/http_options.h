#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "server/openai/exchange.h"

namespace winnow::server {

struct HttpOptions {
  std::string host = "127.0.0.1";
  uint16_t port = 8080;  // 0: any that is free
  int n_threads = 2;
  std::string key_file = {};   // of TLS, PEM; both or none
  std::string cert_file = {};  // the chain
  size_t max_connections = 12000;
  size_t max_header_bytes = size_t{32} << 10;
  size_t max_body_bytes = size_t{32} << 20;
  size_t max_bodies_bytes = size_t{256} << 20;     // of all bodies that are being received
  size_t max_queue_bytes = size_t{1} << 20;        // of a stream that its client does not read
  size_t max_pipelined_bytes = size_t{256} << 10;  // read ahead of the answer at work
  size_t large_body_bytes = size_t{64} << 10;      // from here on one thread is kept for others
  // Deadlines.
  std::chrono::milliseconds handshake{10'000};  // of TLS
  std::chrono::milliseconds header{10'000};     // from its first byte to its last
  std::chrono::milliseconds body{60'000};       // from the end of the header on
  std::chrono::milliseconds idle{300'000};      // between requests
  std::chrono::milliseconds write{60'000};      // of one piece of an answer
  std::chrono::milliseconds linger{1'000};      // until the client ends its side of a closed one
  std::chrono::milliseconds ping{15'000};       // a comment in event streams that are silent
};

// Gets each request with its way back, on that connection's thread.
using Handler = std::function<void(const Call& call, ExchangePtr exchange)>;

}  // namespace winnow::server
