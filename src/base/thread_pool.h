#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <type_traits>

namespace winnow {

// A fixed set of threads that run one parallel loop at a time. The calling thread takes part, so a
// pool of 1 starts no thread. Items are handed out dynamically, so uneven items balance; results
// must not depend on which thread runs an item.
//
// Between loops the threads spin briefly before they sleep, because a decode step has several
// hundred short loops. Loops must not nest, except inside `overlapped`, and only one thread at a
// time may call ParallelFor.
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

  // The order in which a free thread takes items.
  enum class Schedule {
    kDynamic,         // the next free items of the whole loop: threads work side by side
    kStaticStealing,  // first the items of the thread's own part, then those left in other parts.
                      // Loops with equally many runs of items have the same parts, so a thread
                      // finds in its cache what it read in the previous loop.
  };

  // The part, of n_parts equal ones, that an item belongs to. With kStaticStealing, a grain of 1
  // and n_parts = n_threads() it is the index of the thread that starts with it.
  static int64_t PartIndex(int64_t item, int64_t n_items, int64_t n_parts) {
    return ((item + 1) * n_parts - 1) / n_items;
  }

  // Calls body(item, thread) for every item in [0, n_items), with thread in [0, n_threads()), and
  // returns when all are done. Items are claimed in runs of `grain`. A single item, or a pool of
  // one thread, runs on the caller without a barrier. An exception thrown by an item is rethrown
  // here after all threads have stopped.
  //
  // `overlapped` is work unrelated to the loop. The calling thread runs it once, before its first
  // item, while the other threads run items. Loops inside it run on the calling thread alone.
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
