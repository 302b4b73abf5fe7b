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

// Makes constraints one after another on a thread of its own: compiling a schema can take seconds,
// in which other requests go on. Thread-safe.
class ConstraintQueue {
 public:
  // No factory: Make must not be called.
  explicit ConstraintQueue(std::shared_ptr<const ConstraintFactory> factory);
  ~ConstraintQueue();  // Stop

  using Outcome = std::variant<std::unique_ptr<runtime::TokenConstraint>, ApiError>;
  struct Job {
    ConstraintSpec spec;
    std::function<bool()> cancelled;            // nobody waits any more; asked on the thread
    std::function<void(Outcome outcome)> done;  // on the thread, or at once where it is refused
  };
  // What cancelled or done throw on the thread ends the job alone. Throws where the first job's
  // thread cannot start. Errors, to `done`: what the factory says (400), 429 where 64 wait already,
  // 503 once stopped.
  void Make(Job job);
  // Waits for the one that is being made; the others end with 503.
  void Stop();

 private:
  void Run();

  const std::shared_ptr<const ConstraintFactory> factory_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Job> waiting_;
  bool stopped_ = false;
  std::thread thread_;  // begins with the first job
};

}  // namespace winnow::server
