#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "server/openai/api_error.h"
#include "server/openai/options.h"

namespace winnow::server {

// Makes constraints one after another on its own thread: compiling a schema can take seconds, and
// other requests must not wait for it. A job that takes longer than `patience` while others wait
// for another constraint is stopped, and begun again, for good, when none waits that has not had
// its turn, or when eight have had theirs. Thread-safe.
class ConstraintQueue {
 public:
  // `factory` may be null; then Make must not be called.
  explicit ConstraintQueue(std::shared_ptr<const ConstraintFactory> factory,
                           std::chrono::milliseconds patience = std::chrono::seconds(2));
  ~ConstraintQueue();  // Stop

  using Outcome = std::variant<std::unique_ptr<runtime::TokenConstraint>, ApiError>;
  struct Job {
    ConstraintSpec spec;
    // Whether the client has gone: the job is not begun, or ended early, without a call of `done`.
    // Called often, on the queue's thread and in Make.
    std::function<bool()> cancelled;
    std::function<void(Outcome outcome)> done;  // called on the queue's thread, or in Make or Stop
  };
  // Exceptions from `cancelled` and `done` on the queue's thread end that job only. Throws if the
  // thread cannot start, which the first job does. Errors, passed to `done`: the factory's (400),
  // 429 if 64 jobs wait whose clients have not gone, 503 once stopped.
  void Make(Job job);
  // Jobs that wait or run get a 503. Waits until the factory ends the running one, which is
  // cancelled.
  void Stop();

 private:
  void Run();
  bool Do(const Job& job, bool for_good);  // false: it must be begun again
  void DoAgainLater(Job job);

  const std::shared_ptr<const ConstraintFactory> factory_;
  const std::chrono::milliseconds patience_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Job> waiting_;
  std::deque<Job> again_;  // to be begun again
  int64_t n_made_ = 0;     // jobs that came in
  std::atomic<bool> stopped_{false};
  std::thread thread_;  // starts with the first job
};

}  // namespace winnow::server
