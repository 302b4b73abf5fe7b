#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace winnow::server {

// A request as the protocol sees it.
struct Call {
  using Pairs = std::vector<std::pair<std::string, std::string>>;

  std::string method = {};  // "GET"
  std::string path = {};    // percent-decoded, without the query
  Pairs query = {};         // percent-decoded
  Pairs headers = {};       // names in lower case
  std::string body = {};
  std::chrono::steady_clock::time_point arrived = std::chrono::steady_clock::now();

  // Empty where absent.
  std::string_view Header(std::string_view name) const;
  std::string_view Query(std::string_view name) const;
};

struct Reply {
  int status = 200;
  std::string content_type = "application/json";
  std::string body = {};
  Call::Pairs headers = {};
};

// The way back of one request: either Send, or BeginStream, Write and End. The members may be
// called on the exchange's own thread only (where the handler is called), except Post. What is sent
// after the client has gone is dropped.
class Exchange {
 public:
  virtual ~Exchange() = default;
  virtual void Send(Reply reply) = 0;
  virtual void BeginStream(Reply head) = 0;  // its body is not sent
  virtual void Write(std::string bytes) = 0;
  virtual void End() = 0;
  // `closed` is called once if the client goes away before the answer is complete.
  virtual void OnClosed(std::function<void()> closed) = 0;
  // Runs `work` on the exchange's thread. Thread-safe.
  virtual void Post(std::function<void()> work) = 0;
  // The same for work that grows with the request: many large ones leave a thread for others.
  virtual void PostWork(std::function<void()> work) = 0;
  // The same once few others hold much memory for their answers, which they do until their turn is
  // destroyed. Not where the client has gone meanwhile.
  using MemorySlot = std::shared_ptr<void>;
  virtual void AcquireMemorySlot(std::function<void(MemorySlot turn)> work) = 0;
  // Counts what an answer takes before it is sent with what all connections buffer. False: all
  // together would be too much, and as much counts as before.
  virtual bool Hold(size_t bytes) = 0;
  // The same after a while, unless the client has gone.
  virtual void After(std::chrono::milliseconds delay, std::function<void()> work) = 0;
};
using ExchangePtr = std::shared_ptr<Exchange>;

}  // namespace winnow::server
