#include "base/thread_pool.h"

#include <sched.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <exception>
#include <limits>
#include <mutex>
#include <thread>
#include <utility>
#include <vector>

#include "base/check.h"

namespace winnow {
namespace {

// About 50 microseconds: longer than the gaps between the loops of one token, short enough that an
// idle engine does not occupy its cores.
constexpr int kSpins = 2000;

void Pause() {
#if defined(__x86_64__) || defined(__i386__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

}  // namespace

struct ThreadPool::State {
  int n_threads = 1;
  std::vector<std::thread> threads;

  // The current loop. The caller writes it before it increments `generation`.
  ItemFunction function = nullptr;
  const void* context = nullptr;
  int64_t grain = 1;
  int n_parts = 1;             // number of `parts` in use
  bool in_overlapped = false;  // only the calling thread reads and writes it

  // A range of items, claimed in order.
  struct alignas(64) Part {
    std::atomic<int64_t> next{0};
    int64_t end = 0;
  };
  std::unique_ptr<Part[]> parts;  // [n_threads]

  alignas(64) std::atomic<uint64_t> generation{0};  // incremented once per loop
  alignas(64) std::atomic<int> n_working{0};
  std::atomic<bool> stopping{false};

  std::mutex mutex;
  std::condition_variable wake;
  std::atomic<int> n_sleeping{0};

  // The first exception thrown by an item. It is rethrown to the caller when all threads are done.
  std::mutex failure_mutex;
  std::exception_ptr failure;

  void Work(int thread, const std::function<void()>& overlapped) {
    try {
      RunOverlapped(overlapped);
      RunItems(thread);
    } catch (...) {
      const std::lock_guard<std::mutex> lock(failure_mutex);
      if (!failure) failure = std::current_exception();
      for (int i = 0; i < n_parts; ++i) {  // let no thread start another item
        parts[static_cast<size_t>(i)].next.store(std::numeric_limits<int64_t>::max() / 2,
                                                 std::memory_order_relaxed);
      }
    }
  }

  void RunOverlapped(const std::function<void()>& overlapped) {
    if (!overlapped) return;
    in_overlapped = true;
    try {
      overlapped();
    } catch (...) {
      in_overlapped = false;
      throw;
    }
    in_overlapped = false;
  }

  void RunItems(int thread) {
    const int64_t step = grain;
    for (int i = 0; i < n_parts; ++i) {
      Part& part = parts[static_cast<size_t>((thread + i) % n_parts)];
      // Read before fetch_add: when the part is finished, the cache line stays shared.
      while (part.next.load(std::memory_order_relaxed) < part.end) {
        const int64_t first = part.next.fetch_add(step, std::memory_order_relaxed);
        if (first >= part.end) break;
        const int64_t last = std::min(first + step, part.end);
        for (int64_t item = first; item < last; ++item) function(context, item, thread);
      }
    }
  }

  // Waits until `generation` differs from `seen`; returns the new value.
  uint64_t Await(uint64_t seen) {
    for (int spin = 0; spin < kSpins; ++spin) {
      const uint64_t now = generation.load(std::memory_order_acquire);
      if (now != seen) return now;
      Pause();
    }
    std::unique_lock<std::mutex> lock(mutex);
    n_sleeping.fetch_add(1, std::memory_order_seq_cst);
    wake.wait(lock, [&] { return generation.load(std::memory_order_seq_cst) != seen; });
    n_sleeping.fetch_sub(1, std::memory_order_seq_cst);
    return generation.load(std::memory_order_acquire);
  }

  void Loop(int thread) {
    uint64_t seen = 0;
    for (;;) {
      seen = Await(seen);
      if (stopping.load(std::memory_order_acquire)) return;
      Work(thread, {});
      n_working.fetch_sub(1, std::memory_order_acq_rel);
    }
  }

  void Stop() {
    stopping.store(true, std::memory_order_release);
    Announce();
    for (std::thread& thread : threads) thread.join();
    threads.clear();
  }

  void Announce() {
    generation.fetch_add(1, std::memory_order_seq_cst);
    if (n_sleeping.load(std::memory_order_seq_cst) > 0) {
      const std::lock_guard<std::mutex> lock(mutex);
      wake.notify_all();
    }
  }
};

ThreadPool::ThreadPool(int n_threads) : state_(std::make_unique<State>()) {
  WINNOW_CHECK(n_threads >= 1 && n_threads <= kMaxThreads);
  state_->n_threads = n_threads;
  state_->parts = std::make_unique<State::Part[]>(static_cast<size_t>(n_threads));
  state_->threads.reserve(static_cast<size_t>(n_threads));
  try {
    for (int thread = 1; thread < n_threads; ++thread) {
      state_->threads.emplace_back([state = state_.get(), thread] { state->Loop(thread); });
    }
  } catch (...) {    // the system has no thread, or no memory
    state_->Stop();  // the threads started so far
    throw;
  }
}

ThreadPool::~ThreadPool() { state_->Stop(); }

int ThreadPool::DefaultThreads() {
  cpu_set_t allowed;
  CPU_ZERO(&allowed);
  int n_cpus = 0;
  if (sched_getaffinity(0, sizeof(allowed), &allowed) == 0) n_cpus = CPU_COUNT(&allowed);
  if (n_cpus <= 0) n_cpus = static_cast<int>(std::thread::hardware_concurrency());
  return std::clamp(n_cpus, 1, kMaxThreads);
}

int ThreadPool::n_threads() const { return state_->n_threads; }

void ThreadPool::Run(int64_t n_items, int64_t grain, Schedule schedule,
                     const std::function<void()>& overlapped, ItemFunction function,
                     const void* context) {
  State& s = *state_;
  if (n_items <= grain || s.n_threads == 1 || s.in_overlapped) {
    WINNOW_DCHECK(!overlapped || !s.in_overlapped);
    s.RunOverlapped(overlapped);
    for (int64_t item = 0; item < n_items; ++item) function(context, item, 0);
    return;
  }
  s.function = function;
  s.context = context;
  s.grain = grain;
  s.n_parts = schedule == Schedule::kStaticStealing ? s.n_threads : 1;
  const int64_t n_runs = (n_items + grain - 1) / grain;
  for (int i = 0; i < s.n_parts; ++i) {
    State::Part& part = s.parts[static_cast<size_t>(i)];
    part.next.store(n_runs * i / s.n_parts * grain, std::memory_order_relaxed);
    part.end = std::min(n_runs * (i + 1) / s.n_parts * grain, n_items);
  }
  s.n_working.store(s.n_threads - 1, std::memory_order_relaxed);
  s.Announce();
  s.Work(0, overlapped);
  // A worker may be preempted during the last item: yield the core after spinning for a while.
  for (int spin = 0; s.n_working.load(std::memory_order_acquire) > 0; ++spin) {
    if (spin < kSpins) {
      Pause();
    } else {
      std::this_thread::yield();
    }
  }
  if (s.failure) std::rethrow_exception(std::exchange(s.failure, nullptr));
}

}  // namespace winnow
