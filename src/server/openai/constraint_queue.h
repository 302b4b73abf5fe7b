#pragma once

#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "server/openai/api_error.h"
#include "server/openai/options.h"

namespace winnow::server {

// Makes constraints one after another on its own thread: compiling a schema can take seconds, and
// other requests must not wait for it. Thread-safe.
class ConstraintQueue {
 public:
  // `factory` may be null; then Make must not be called.
  explicit ConstraintQueue(std::shared_ptr<const ConstraintFactory> factory);
  ~ConstraintQueue();  // Stop

  using Outcome = std::variant<std::unique_ptr<runtime::TokenConstraint>, ApiError>;
  struct Job {
    ConstraintSpec spec;
    std::function<bool()> cancelled;            // the client has gone; called on the queue's thread
    std::function<void(Outcome outcome)> done;  // called on that thread, or in Make if refused
  };
  // Exceptions from `cancelled` and `done` on the queue's thread end that job only. Throws if the
  // thread cannot start, which the first job does. Errors, passed to `done`: the factory's (400),
  // 429 if 64 jobs wait already, 503 once stopped.
  void Make(Job job);
  // Waits for the constraint being made; jobs that wait get a 503.
  void Stop();

 private:
  void Run();

  const std::shared_ptr<const ConstraintFactory> factory_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Job> waiting_;
  bool stopped_ = false;
  std::thread thread_;  // starts with the first job
};

}  // namespace winnow::server
