#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <type_traits>

namespace winnow {

// A fixed set of threads that share the items of one loop at a time. The calling thread works too,
// so a pool of 1 starts no thread. Items are handed out as threads become free, so uneven items
// balance; which thread runs an item must not influence its result.
//
// Between loops the threads spin for a short while before they sleep: a decode step is some hundred
// short loops. Loops must not nest but in `overlapped`, and only one thread at a time may call
// ParallelFor.
class ThreadPool {
 public:
  // Requires: 1 <= n_threads <= kMaxThreads.
  explicit ThreadPool(int n_threads);
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  static constexpr int kMaxThreads = 512;
  static int DefaultThreads();  // physical cores this process may use, at least 1

  int n_threads() const;

  // Which items a free thread takes.
  enum class Schedule {
    kDynamic,         // the next ones: threads work side by side
    kStaticStealing,  // of its own part of all items, and of the others' when that is done. Loops
                      // with as many runs of items have equal parts, so that a thread finds in its
                      // cache what it read in the loop before.
  };

  // Which of n_parts equal parts an item belongs to; with Schedule::kStaticStealing and a grain of
  // 1, one for each thread.
  static int64_t PartIndex(int64_t item, int64_t n_items, int64_t n_parts) {
    return ((item + 1) * n_parts - 1) / n_items;
  }

  // Calls body(item, thread) for every item in [0, n_items), thread in [0, n_threads()); returns
  // when all are done. Items are claimed in runs of `grain`. One item, or one thread, runs on the
  // caller without a barrier.
  //
  // `overlapped` is work of the caller's that has nothing to do with the loop: the calling thread
  // does it once, before its first item, while the others are at theirs. Loops in it run on that
  // thread alone.
  template <typename Body>
  void ParallelFor(int64_t n_items, const Body& body, int64_t grain = 1,
                   Schedule schedule = Schedule::kDynamic,
                   const std::function<void()>& overlapped = {}) {
    using Function = std::remove_reference_t<Body>;
    Run(
        n_items, grain, schedule, overlapped,
        [](const void* context, int64_t item, int thread) {
          (*static_cast<const Function*>(context))(item, thread);
        },
        &body);
  }

 private:
  using ItemFunction = void (*)(const void* context, int64_t item, int thread);
  void Run(int64_t n_items, int64_t grain, Schedule schedule,
           const std::function<void()>& overlapped, ItemFunction function, const void* context);

  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace winnow
