#pragma once

#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <array>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <thread>
#include <utility>

#include "server/http/http_server.h"

namespace winnow::server::testing {

using boost::asio::ip::tcp;

// A blocking client. Each read or write times out after ten seconds.
class Client {
 public:
  explicit Client(uint16_t port, int receive_buffer_bytes = 0) {
    socket_.open(tcp::v4());
    if (receive_buffer_bytes > 0) {
      socket_.set_option(tcp::socket::receive_buffer_size(receive_buffer_bytes));
    }
    constexpr timeval kTimeout = {.tv_sec = 10, .tv_usec = 0};
    setsockopt(socket_.native_handle(), SOL_SOCKET, SO_RCVTIMEO, &kTimeout, sizeof(kTimeout));
    setsockopt(socket_.native_handle(), SOL_SOCKET, SO_SNDTIMEO, &kTimeout, sizeof(kTimeout));
    socket_.connect({boost::asio::ip::address_v4::loopback(), port});
  }
  void ResetWhenClosed() { socket_.set_option(tcp::socket::linger(true, 0)); }
  // False: the server closed the connection or does not read.
  bool Send(std::string_view bytes) {
    while (!bytes.empty()) {
      const ssize_t n = send(socket_.native_handle(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
      if (n <= 0) return false;
      bytes.remove_prefix(static_cast<size_t>(n));
    }
    return true;
  }
  // The server sees the end of the connection but can still answer.
  void EndSending() { socket_.shutdown(tcp::socket::shutdown_send); }
  bool IsReadable() {
    pollfd asked = {.fd = socket_.native_handle(), .events = POLLIN, .revents = 0};
    return poll(&asked, 1, 0) > 0;
  }
  // Reads until `text` has come `n` times, the server closes, or a read times out.
  std::string ReadUntil(std::string_view text, size_t n) {
    std::string all;
    std::array<char, 4096> piece = {};
    size_t from = 0;
    while (n > 0) {
      const ssize_t read = recv(socket_.native_handle(), piece.data(), piece.size(), 0);
      if (read <= 0) break;
      all.append(piece.data(), static_cast<size_t>(read));
      for (size_t at = 0; n > 0 && (at = all.find(text, from)) != std::string::npos; --n) {
        from = at + text.size();
      }
    }
    return all;
  }
  // Fails if the server does not close.
  std::string ReadUntilClosed() {
    std::string all;
    std::array<char, 4096> piece = {};
    ssize_t n = 0;
    while ((n = recv(socket_.native_handle(), piece.data(), piece.size(), 0)) > 0) {
      all.append(piece.data(), static_cast<size_t>(n));
    }
    EXPECT_EQ(n, 0) << "reset, or not closed in time";
    return all;
  }

 private:
  boost::asio::io_context context_;
  tcp::socket socket_{context_};
};

inline bool WaitUntil(const std::function<bool()>& is_so) {
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (!is_so()) {
    if (std::chrono::steady_clock::now() > deadline) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return true;
}

class HttpServerTest : public ::testing::Test {
 protected:
  // Listens on a free port. Declare the server after what its handler uses: its threads run until
  // it is destroyed.
  std::unique_ptr<HttpServer> Listen(const HttpOptions& options, Handler handler) {
    return Listen(options, Handlers{.handle = std::move(handler)});
  }
  std::unique_ptr<HttpServer> Listen(HttpOptions options, Handlers handlers) {
    options.port = 0;
    auto server = HttpServer::Listen(options, std::move(handlers), log_);
    return server ? std::move(*server) : nullptr;
  }

 private:
  NullLog log_;
};

inline std::string PostHead(size_t n_bytes) {
  return "POST / HTTP/1.1\r\nHost: x\r\nContent-Length: " + std::to_string(n_bytes) + "\r\n\r\n";
}

}  // namespace winnow::server::testing
