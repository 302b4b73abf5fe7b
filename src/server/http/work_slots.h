#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <utility>

namespace winnow::server {

// Lets only so many pieces of work begin at once, and of large ones fewer, so that small ones need
// not wait until those end. The others wait, first come, first served among those that may begin.
// What throws instead of starting gives its place back. Thread-safe.
class WorkSlots {
 public:
  enum class Size { kSmall, kLarge };

  WorkSlots(int n, int n_large) : n_free_(n), n_large_free_(n_large) {}

  // Calls `start` here, or where a piece that ends makes room. Each that was started says Done,
  // with the same size.
  void Run(Size size, std::function<void()> start) {
    {
      const std::lock_guard lock(mutex_);
      if (cleared_) return;
      if (!MayBegin(size)) {
        Waiting(size).push_back({n_waited_++, std::move(start)});
        return;
      }
      Take(size);
    }
    Start(size, start);
  }
  void Done(Size size) {
    Size next_size = Size::kSmall;
    std::function<void()> next;
    {
      const std::lock_guard lock(mutex_);
      ++n_free_;
      if (size == Size::kLarge) ++n_large_free_;
      // One at most: who waits has waited for this place.
      if (!FindNext(next_size)) return;
      next = std::move(Waiting(next_size).front().start);
      Waiting(next_size).pop_front();
      Take(next_size);
    }
    Start(next_size, next);
  }
  // What waits never starts, nor what comes later.
  void Clear() {
    std::array<std::deque<Entry>, 2> dropped;
    const std::lock_guard lock(mutex_);
    dropped.swap(waiting_);
    cleared_ = true;
  }

 private:
  struct Entry {
    uint64_t number;  // in the order they came
    std::function<void()> start;
  };
  std::deque<Entry>& Waiting(Size size) { return waiting_[size == Size::kLarge ? 1 : 0]; }
  bool MayBegin(Size size) const {
    return n_free_ > 0 && (size == Size::kSmall || n_large_free_ > 0);
  }
  void Take(Size size) {
    --n_free_;
    if (size == Size::kLarge) --n_large_free_;
  }
  // The one that came first of those that may begin.
  bool FindNext(Size& found) {
    uint64_t first = n_waited_;
    for (const Size size : {Size::kSmall, Size::kLarge}) {
      if (Waiting(size).empty() || !MayBegin(size) || Waiting(size).front().number >= first)
        continue;
      first = Waiting(size).front().number;
      found = size;
    }
    return first < n_waited_;
  }
  void Start(Size size, const std::function<void()>& start) {
    try {
      start();
    } catch (...) {
      Done(size);  // the next one may begin
      throw;
    }
  }

  std::mutex mutex_;
  int n_free_, n_large_free_;
  bool cleared_ = false;
  uint64_t n_waited_ = 0;
  std::array<std::deque<Entry>, 2> waiting_;  // by size
};

// The place of a piece of work that was started. Its end says Done.
class OpenSlot {
 public:
  OpenSlot(WorkSlots& slots, WorkSlots::Size size) : slots_(slots), size_(size) {}
  ~OpenSlot() {
    try {
      slots_.Done(size_);
    } catch (...) {  // the next one could not begin, and has given its place back
    }
  }
  OpenSlot(const OpenSlot&) = delete;
  OpenSlot& operator=(const OpenSlot&) = delete;

 private:
  WorkSlots& slots_;
  const WorkSlots::Size size_;
};

// Calls `start` with its place once there is one. What throws is dropped with its place.
inline void RunInSlot(WorkSlots& slots,
                      std::function<void(const std::shared_ptr<OpenSlot>& slot)> start) {
  using Size = WorkSlots::Size;
  slots.Run(Size::kSmall, [&slots, start = std::move(start)] {
    const auto slot = std::make_shared<OpenSlot>(slots, Size::kSmall);
    try {
      start(slot);
    } catch (const std::exception&) {  // its client is not answered; the slot says Done, once
    }
  });
}

}  // namespace winnow::server
