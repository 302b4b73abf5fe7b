#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace winnow::server {

// An HTTP request, read to its end.
struct HttpRequest {
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

struct HttpResponse {
  int status = 200;
  std::string content_type = "application/json";
  std::string body = {};
  HttpRequest::Pairs headers = {};
};

// Takes the response to one request: either Send, or BeginStream, Write and End. All members are
// called on the exchange's own thread (that of the handler), except Post, PostWork and
// AcquireMemorySlot, which are thread-safe. After the client has gone, whatever is sent is dropped.
class Exchange {
 public:
  virtual ~Exchange() = default;
  virtual void Send(HttpResponse response) = 0;
  virtual void BeginStream(HttpResponse head) = 0;  // its body is ignored
  virtual void Write(std::string bytes) = 0;
  virtual void End() = 0;
  // `closed` is called once if the client goes away before the response is complete.
  virtual void OnClosed(std::function<void()> closed) = 0;
  // Runs `work` on the exchange's thread. Thread-safe.
  virtual void Post(std::function<void()> work) = 0;
  // As Post, for work that grows with the request. It waits for a free thread; large requests leave
  // one to others.
  virtual void PostWork(std::function<void()> work) = 0;
  // As Post, once few other responses hold much memory. The slot lasts until its last copy is
  // destroyed. `work` does not run if the client has gone.
  using MemorySlot = std::shared_ptr<void>;
  virtual void AcquireMemorySlot(std::function<void(MemorySlot slot)> work) = 0;
  // Counts memory that a response takes before it is sent against the buffers of all connections.
  // False: above their limit; the count stays.
  virtual bool Hold(size_t bytes) = 0;
  // As Post, after `delay`, unless the client has gone. Not thread-safe.
  virtual void After(std::chrono::milliseconds delay, std::function<void()> work) = 0;
};
using ExchangePtr = std::shared_ptr<Exchange>;

}  // namespace winnow::server
