#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace winnow::bench {

using Clock = std::chrono::steady_clock;

// One request to a server on this machine, POST /completion of llama-server's protocol, over its
// own connection; the response is a stream of server-sent events. The socket does not block: the
// caller polls it and calls Continue() when it is ready.
class Stream {
 public:
  // Returns a connected socket; nullopt if the server does not accept the connection.
  static std::optional<int> Connect(int port);

  Stream(int socket, std::string body);
  ~Stream();
  Stream(Stream&& other) noexcept;
  Stream& operator=(Stream&&) = delete;

  int socket() const { return socket_; }
  bool wants_to_write() const { return n_sent_ < request_.size(); }
  // Sends and receives what is possible now.
  void Continue();

  bool done() const { return done_; }
  // An error message, or the start of the response if its status is not 200; empty: no error.
  const std::string& problem() const { return problem_; }
  Clock::time_point started() const { return started_; }
  // Arrival times of the events with a part of the response, oldest first.
  const std::vector<Clock::time_point>& times() const { return times_; }
  // Tokens of the response, from the server's last event.
  int64_t n_tokens() const { return n_tokens_; }

 private:
  void Receive(std::string_view bytes);
  void ReadHead();
  void ReadBody();
  void ReadLine(std::string_view line);
  void End(std::string problem);

  int socket_;
  std::string request_;
  size_t n_sent_ = 0;
  std::string held_;  // received, not yet parsed
  bool in_body_ = false;
  bool chunked_ = false;
  size_t n_chunk_left_ = 0;
  std::string line_;
  bool done_ = false;
  std::string problem_;
  Clock::time_point started_;
  std::vector<Clock::time_point> times_;
  int64_t n_tokens_ = 0;
};

// The number after the last "name": in a JSON text; -1 if there is none.
int64_t NumberAfter(std::string_view json, std::string_view name);

}  // namespace winnow::bench
