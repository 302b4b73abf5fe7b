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

// Limits how much work runs at once, and large work more tightly, so that small work need not wait
// for it. The rest waits: first come, first served among the work that may start. If a start
// function throws, its slot is freed. Thread-safe.
class WorkSlots {
 public:
  enum class Size { kSmall, kLarge };

  WorkSlots(int n, int n_large) : n_free_(n), n_large_free_(n_large) {}

  // Calls `start` in this thread, or later in the thread whose Done frees a slot. The work that was
  // started must call Done once, with the same size; if `start` throws, Done was called already.
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
      // Only one slot was freed, so at most one starts.
      if (!FindNext(next_size)) return;
      next = std::move(Waiting(next_size).front().start);
      Waiting(next_size).pop_front();
      Take(next_size);
    }
    Start(next_size, next);
  }
  // Drops the work that waits and all that comes later. Needs no memory.
  void Clear() {
    for (;;) {
      Entry dropped = {};  // destroyed without the lock
      const std::lock_guard lock(mutex_);
      cleared_ = true;
      std::deque<Entry>& waiting = waiting_[waiting_[0].empty() ? 1 : 0];
      if (waiting.empty()) return;
      dropped = std::move(waiting.front());
      waiting.pop_front();
    }
  }

 private:
  struct Entry {
    uint64_t number;  // in order of arrival
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
  // Finds the size of the earliest work that may start. False: none may.
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
      Done(size);  // the next may start
      throw;
    }
  }

  std::mutex mutex_;
  int n_free_, n_large_free_;
  bool cleared_ = false;
  uint64_t n_waited_ = 0;
  std::array<std::deque<Entry>, 2> waiting_;  // by size
};

// The slot of running work; its destructor calls Done.
class OpenSlot {
 public:
  OpenSlot(WorkSlots& slots, WorkSlots::Size size) : slots_(slots), size_(size) {}
  ~OpenSlot() {
    try {
      slots_.Done(size_);
    } catch (...) {  // the next work failed to start and has freed its slot
    }
  }
  OpenSlot(const OpenSlot&) = delete;
  OpenSlot& operator=(const OpenSlot&) = delete;

 private:
  WorkSlots& slots_;
  const WorkSlots::Size size_;
};

// Calls `start` with its slot once one is free. An exception from `start` is dropped and frees the
// slot.
inline void RunInSlot(WorkSlots& slots,
                      std::function<void(const std::shared_ptr<OpenSlot>& slot)> start) {
  using Size = WorkSlots::Size;
  slots.Run(Size::kSmall, [&slots, start = std::move(start)] {
    const auto slot = std::make_shared<OpenSlot>(slots, Size::kSmall);
    try {
      start(slot);
    } catch (const std::exception&) {  // its client gets no response; `slot` calls Done
    }
  });
}

}  // namespace winnow::server
