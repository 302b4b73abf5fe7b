#pragma once

#include <algorithm>
#include <atomic>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/ssl/context.hpp>
#include <memory>

#include "server/http/byte_limit.h"
#include "server/http/http_options.h"
#include "server/http/work_slots.h"

namespace winnow::server {

// At most this many responses that need much memory before they are sent are made at once.
constexpr int kMaxMemorySlots = 2;

// State shared by all connections of a server.
struct ConnectionShared {
  const HttpOptions& options;
  Handlers handlers;
  std::atomic<size_t> n_connections{0};
  ByteLimit large_bodies{options.max_bodies_bytes};  // of requests that are being received
  ByteLimit buffers{options.max_buffers_bytes};
  std::atomic<bool> draining{false};
  // For requests with bodies, which occupy a thread for long. There is one thread more than slots,
  // so that /health and other short requests are served; large bodies leave one slot for small
  // ones.
  WorkSlots slots{options.n_threads, std::max(1, options.n_threads - 1)};
  WorkSlots memory_slots{kMaxMemorySlots, kMaxMemorySlots};  // Exchange::AcquireMemorySlot
};

// One client connection. Its callbacks run on the socket's executor, a strand, and keep it alive.
class Connection {
 public:
  virtual ~Connection() = default;
  virtual void Start() = 0;
  // Closes it now if it is idle, otherwise after the current answer. Thread-safe.
  virtual void Drain() = 0;
  virtual void Abort() = 0;  // at once; thread-safe
};

// `shared` and `tls` must outlive the connection.
std::shared_ptr<Connection> MakeConnection(boost::asio::ip::tcp::socket socket,
                                           ConnectionShared& shared);
std::shared_ptr<Connection> MakeTlsConnection(boost::asio::ip::tcp::socket socket,
                                              boost::asio::ssl::context& tls,
                                              ConnectionShared& shared);

}  // namespace winnow::server
