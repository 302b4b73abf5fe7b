// Arbitrary bytes on a connection: the server answers or closes, in time, and hands only valid
// requests to its handler.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <utility>

#include "base/check.h"
#include "base/log.h"
#include "server/http/http_server.h"

namespace {

using std::chrono::milliseconds;
using winnow::server::ExchangePtr;
using winnow::server::HttpRequest;
using winnow::server::HttpServer;

constexpr size_t kMaxBody = 2048;

void Answer(const HttpRequest& request, ExchangePtr exchange) {
  WINNOW_CHECK(!request.method.empty() && !request.path.empty() && request.body.size() <= kMaxBody);
  const std::string_view length = request.Header("content-length");
  if (!length.empty() && request.Header("transfer-encoding").empty()) {
    WINNOW_CHECK(std::to_string(request.body.size()) ==
                 length.substr(std::min(length.find_first_not_of('0'), length.size() - 1)));
  }
  for (const auto& [name, value] : request.headers) {
    WINNOW_CHECK(value.find_first_of(std::string_view("\r\n\0", 3)) == std::string::npos);
    for (const char c : name) WINNOW_CHECK(c > ' ' && (c < 'A' || c > 'Z'));
  }
  if (request.path != "/stream") return exchange->Send({.body = "{}"});
  exchange->BeginStream({.content_type = "text/event-stream"});
  exchange->Write("data: 1\n\n");
  exchange->Write(request.body);
  exchange->End();
}

HttpServer& Server() {
  static winnow::NullLog log;
  static const auto server = HttpServer::Listen({.port = 0,
                                                 .n_threads = 1,
                                                 .max_header_bytes = 1024,
                                                 .max_body_bytes = kMaxBody,
                                                 .max_pipelined_bytes = 1024,
                                                 .header = milliseconds(500),
                                                 .body = milliseconds(500),
                                                 .idle = milliseconds(500),
                                                 .write = milliseconds(500),
                                                 .linger = milliseconds(100)},
                                                {.handle = Answer}, log)
                                 .value();
  return *server;
}

int Connect() {
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(Server().port());
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const int socket = ::socket(AF_INET, SOCK_STREAM, 0);
  WINNOW_CHECK(socket >= 0);
  WINNOW_CHECK(connect(socket, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0);
  return socket;
}

// Reads until the server closes. It may close before it has read everything: then with a reset.
std::string ReadToEnd(int socket) {
  std::string all;
  std::array<char, 4096> bytes;
  for (;;) {
    pollfd wanted = {.fd = socket, .events = POLLIN, .revents = 0};
    int n_ready = -1;
    do {
      n_ready = poll(&wanted, 1, /*timeout=*/5000);
    } while (n_ready < 0 && errno == EINTR);  // interrupted by libFuzzer's timer
    WINNOW_CHECK(n_ready == 1);               // otherwise the server hangs
    const ssize_t n = read(socket, bytes.data(), bytes.size());
    if (n <= 0) return all;
    all.append(bytes.data(), static_cast<size_t>(n));
  }
}

// Sends the two pieces of an input and returns all that comes back.
std::string Ask(std::string_view first, std::string_view second) {
  const int socket = Connect();
  for (const std::string_view piece : {first, second}) {
    if (piece.empty()) continue;
    (void)!send(socket, piece.data(), piece.size(), MSG_NOSIGNAL);
  }
  shutdown(socket, SHUT_WR);
  std::string answers = ReadToEnd(socket);
  close(socket);
  return answers;
}

}  // namespace

// The first byte chooses where the rest is cut into two pieces.
extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  if (size == 0) return 0;
  const std::string_view text(reinterpret_cast<const char*>(data) + 1, size - 1);
  const size_t cut = text.size() * data[0] / 256;
  static const bool answers_at_all =
      Ask("GET / HTTP/1.1\r\nHost: a\r\n", "\r\n").starts_with("HTTP/1.1 200");
  WINNOW_CHECK(answers_at_all);
  const std::string answers = Ask(text.substr(0, cut), text.substr(cut));
  WINNOW_CHECK(answers.empty() || answers.starts_with("HTTP/1."));
  return 0;
}
