#include "stream.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <utility>

namespace winnow::bench {
namespace {

std::string Lower(std::string text) {
  std::ranges::transform(text, text.begin(), [](char c) {
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  });
  return text;
}

}  // namespace

int64_t NumberAfter(std::string_view json, std::string_view name) {
  const std::string key = "\"" + std::string(name) + "\":";
  size_t at = json.rfind(key);
  if (at == std::string_view::npos) return -1;
  at += key.size();
  while (at < json.size() && json[at] == ' ') ++at;
  int64_t number = -1;
  std::from_chars(json.data() + at, json.data() + json.size(), number);
  return number;
}

std::optional<int> Stream::Connect(int port) {
  const int socket = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  if (socket < 0) return std::nullopt;
  sockaddr_in address = {};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (connect(socket, reinterpret_cast<const sockaddr*>(&address), sizeof(address)) != 0) {
    close(socket);
    return std::nullopt;
  }
  const int on = 1;
  setsockopt(socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
  return socket;
}

Stream::Stream(int socket, std::string body)
    : socket_(socket),
      request_(
          "POST /completion HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
          "Connection: close\r\nContent-Length: " +
          std::to_string(body.size()) + "\r\n\r\n" + body),
      started_(Clock::now()) {}

Stream::Stream(Stream&& other) noexcept
    : socket_(std::exchange(other.socket_, -1)),
      request_(std::move(other.request_)),
      n_sent_(other.n_sent_),
      held_(std::move(other.held_)),
      in_body_(other.in_body_),
      chunked_(other.chunked_),
      n_chunk_left_(other.n_chunk_left_),
      line_(std::move(other.line_)),
      done_(other.done_),
      problem_(std::move(other.problem_)),
      started_(other.started_),
      times_(std::move(other.times_)),
      n_tokens_(other.n_tokens_) {}

Stream::~Stream() {
  if (socket_ >= 0) close(socket_);
}

void Stream::End(std::string problem) {
  done_ = true;
  problem_ = std::move(problem);
}

void Stream::Continue() {
  while (wants_to_write()) {
    const ssize_t n = send(socket_, request_.data() + n_sent_, request_.size() - n_sent_,
                           MSG_DONTWAIT | MSG_NOSIGNAL);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) break;
    if (n < 0) return End(std::string("sending failed: ") + std::strerror(errno));
    n_sent_ += static_cast<size_t>(n);
  }
  char bytes[1 << 16];
  while (!done_) {
    const ssize_t n = recv(socket_, bytes, sizeof(bytes), MSG_DONTWAIT);
    if (n < 0 && (errno == EAGAIN || errno == EINTR)) return;
    if (n < 0) return End(std::string("receiving failed: ") + std::strerror(errno));
    if (n == 0) return End(n_tokens_ > 0 ? "" : "the connection was closed without a response");
    Receive({bytes, static_cast<size_t>(n)});
  }
}

void Stream::Receive(std::string_view bytes) {
  held_ += bytes;
  if (!in_body_) ReadHead();
  if (in_body_ && !done_) ReadBody();
}

void Stream::ReadHead() {
  const size_t end = held_.find("\r\n\r\n");
  if (end == std::string::npos) return;
  const std::string head = Lower(held_.substr(0, end));
  if (head.find(" 200") > head.find("\r\n")) return End(held_.substr(0, end + 4 + 300));
  chunked_ = head.find("transfer-encoding: chunked") != std::string::npos;
  held_.erase(0, end + 4);
  in_body_ = true;
}

void Stream::ReadBody() {
  const auto take = [this](std::string_view text) {
    for (const char c : text) {
      if (c != '\n') {
        line_ += c;
        continue;
      }
      ReadLine(line_);
      line_.clear();
    }
  };
  size_t at = 0;
  while (at < held_.size() && !done_) {
    if (!chunked_) {
      take(std::string_view(held_).substr(at));
      at = held_.size();
      break;
    }
    if (n_chunk_left_ == 0) {
      const size_t start = held_.compare(at, 2, "\r\n") == 0 ? at + 2 : at;
      const size_t end = held_.find("\r\n", start);
      if (end == std::string::npos) break;
      std::from_chars(held_.data() + start, held_.data() + end, n_chunk_left_, 16);
      at = end + 2;
      if (n_chunk_left_ == 0) return End(n_tokens_ > 0 ? "" : "the answer has no tokens");
    }
    const size_t n = std::min(n_chunk_left_, held_.size() - at);
    take(std::string_view(held_).substr(at, n));
    n_chunk_left_ -= n;
    at += n;
  }
  held_.erase(0, at);
}

void Stream::ReadLine(std::string_view line) {
  if (line.starts_with("error:")) return End(std::string(line));
  if (!line.starts_with("data:")) return;
  if (line.find("\"error\"") != std::string_view::npos) return End(std::string(line));
  const bool last = line.find("\"stop\":true") != std::string_view::npos ||
                    line.find("\"stop\": true") != std::string_view::npos;
  if (!last) {
    // Events of prompt progress are not part of the response.
    if (line.find("\"content\"") != std::string_view::npos) times_.push_back(Clock::now());
    return;
  }
  n_tokens_ = NumberAfter(line, "tokens_predicted");
  End(n_tokens_ > 0 ? "" : "the last event lacks tokens_predicted");
}

}  // namespace winnow::bench
