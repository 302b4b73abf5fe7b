#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace winnow::bench {

using Clock = std::chrono::steady_clock;

// One request over a connection of its own to a server on this machine, answered by server-sent
// events: POST /completion as llama-server has it. Sockets do not block; poll() says who has news.
class Stream {
 public:
  // Error: empty where the server does not answer.
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
  // What went wrong; empty: nothing. The status line where it is not 200.
  const std::string& problem() const { return problem_; }
  Clock::time_point started() const { return started_; }
  // When events with a part of the answer came, oldest first.
  const std::vector<Clock::time_point>& times() const { return times_; }
  // Tokens of the answer, as the server counts them in its last event.
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
  std::string held_;  // of the response, not yet understood
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

// The number behind "name": in a JSON text; -1: there is none.
int64_t NumberAfter(std::string_view json, std::string_view name);

}  // namespace winnow::bench
