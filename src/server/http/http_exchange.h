#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "server/http/http_options.h"
#include "server/http/work_slots.h"

namespace winnow::server {

// What an exchange needs of its connection. Called on the connection's strand, except Post,
// PostWork and AcquireMemorySlot, which are thread-safe.
class Wire {
 public:
  virtual ~Wire() = default;
  // Queues `bytes` and then `more`: both or none. `limited`: closes the connection instead if more
  // than max_queue_bytes are waiting already.
  virtual void Queue(std::string bytes, std::string more, bool limited) = 0;
  virtual void AnswerDone(bool keep_alive) = 0;
  virtual void SetPings(bool on) = 0;
  virtual void Post(std::function<void()> work) = 0;
  // As Post, once a work slot for this size is free.
  virtual void PostWork(WorkSlots::Size size, std::function<void()> work) = 0;
  // See Exchange::AcquireMemorySlot and Hold.
  virtual void AcquireMemorySlot(std::function<void(Exchange::MemorySlot slot)> work) = 0;
  virtual bool Hold(size_t bytes) = 0;
  virtual void After(std::chrono::milliseconds delay, std::function<void()> work) = 0;
};

// The parts of a request that its response depends on.
struct ResponseOptions {
  bool is_head = false;
  bool is_http_1_0 = false;
  bool keep_alive = true;
  WorkSlots::Size size = WorkSlots::Size::kSmall;  // of the request
};

// The HTTP/1.1 side of one exchange: status line, headers, chunks.
class HttpExchange final : public Exchange {
 public:
  HttpExchange(std::shared_ptr<Wire> wire, ResponseOptions form);

  void Send(HttpResponse response) override;
  void BeginStream(HttpResponse head) override;
  void Write(std::string bytes) override;
  void End() override;
  void OnClosed(std::function<void()> closed) override;
  void Post(std::function<void()> work) override;
  void PostWork(std::function<void()> work) override;
  void AcquireMemorySlot(std::function<void(MemorySlot slot)> work) override;
  bool Hold(size_t bytes) override;
  void After(std::chrono::milliseconds delay, std::function<void()> work) override;

  // The client has disconnected.
  void Closed();
  bool is_done() const { return state_ == State::kDone; }  // the whole response is queued
  // Closes the connection after this response.
  void CloseAfterwards() { form_.keep_alive = false; }

 private:
  enum class State { kOpen, kStreaming, kDone };
  std::string Head(const HttpResponse& response, const char* length_header, size_t length) const;
  void Finish();

  std::shared_ptr<Wire> wire_;
  ResponseOptions form_;
  State state_ = State::kOpen;
  bool gone_ = false;
  std::function<void()> closed_;
};

}  // namespace winnow::server
