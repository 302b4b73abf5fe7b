#pragma once

#include <deque>
#include <functional>
#include <mutex>
#include <utility>

namespace winnow::server {

// Lets only so many pieces of long work begin at once; the others wait, first come, first served.
// What throws instead of starting gives its place back. Thread-safe.
class WorkSlots {
 public:
  explicit WorkSlots(int n) : n_free_(n) {}

  // Calls `start` here, or where a piece that ends makes room. Each that was started says Done.
  void Run(std::function<void()> start) {
    {
      const std::lock_guard lock(mutex_);
      if (cleared_) return;
      if (n_free_ == 0) {
        waiting_.push_back(std::move(start));
        return;
      }
      --n_free_;
    }
    Start(start);
  }
  void Done() {
    std::function<void()> next;
    {
      const std::lock_guard lock(mutex_);
      if (waiting_.empty()) {
        ++n_free_;
        return;
      }
      next = std::move(waiting_.front());
      waiting_.pop_front();
    }
    Start(next);
  }
  // What waits never starts, nor what comes later.
  void Clear() {
    std::deque<std::function<void()>> dropped;
    const std::lock_guard lock(mutex_);
    dropped.swap(waiting_);
    cleared_ = true;
  }

 private:
  void Start(const std::function<void()>& start) {
    try {
      start();
    } catch (...) {
      Done();  // the next one may begin
      throw;
    }
  }

  std::mutex mutex_;
  int n_free_;
  bool cleared_ = false;
  std::deque<std::function<void()>> waiting_;
};

}  // namespace winnow::server
