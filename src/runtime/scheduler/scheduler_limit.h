#pragma once

#include <cstdint>
#include <functional>
#include <set>
#include <string>
#include <vector>

#include "runtime/scheduler/scheduler_active.h"
#include "runtime/scheduler/scheduler_context.h"
#include "runtime/store/session_store.h"

namespace winnow::runtime {

// The memory limit: what counts against it, which idle sessions leave for a request, and what waits
// for memory. Not thread-safe.
class MemoryLimit {
 public:
  // All arguments must outlive it. `fixed_bytes`: of the model and the buffers, which no request
  // can have.
  MemoryLimit(const SchedulerContext& context, int64_t fixed_bytes, const ActiveRequests& active,
              SessionStore& store)
      : context_(context), fixed_bytes_(fixed_bytes), active_(active), store_(store) {}

  int64_t fixed_bytes() const { return fixed_bytes_; }
  // Of active requests, sessions being read from files, and idle sessions.
  int64_t ReservedBytes() const;

  // Whether n_bytes more are free. If not, evicts idle sessions as needed; those that must be
  // written first free their bytes later (will_be_freed).
  bool Free(int64_t n_bytes, const SessionStore::EvictionFilter& spared);
  // Whether file work is under way that may free memory, apart from n_own tasks of the caller and
  // reads that wait for memory themselves.
  bool will_be_freed(int n_own = 0) const {
    return store_.n_file_work() - static_cast<int>(waiting_reads_.size()) > n_own;
  }
  bool fits_alone(int64_t n_bytes) const {
    return limit_bytes() == 0 || fixed_bytes_ + n_bytes <= limit_bytes();
  }
  // The error for `what`, which needs n_bytes besides n_beside that stay: kTooLarge if that can
  // never fit, kQueueFull if it does not fit now.
  RequestError OutOfMemory(const std::string& what, int64_t n_bytes, int64_t n_beside) const;
  // Sessions that are being read from files: upper bounds of their bytes.
  void AddReading(int64_t n_bytes) { reading_bytes_ += n_bytes; }
  void EndReading(int64_t n_bytes) { reading_bytes_ -= n_bytes; }

  // Calls `again` when some file work has ended.
  void Wait(std::function<void()> again) { waiters_.push_back(std::move(again)); }
  // The same for the read of a file, which counts as file work and frees nothing.
  void WaitToRead(const std::string& file, std::function<void()> again);
  bool waits_to_be_read(const std::string& file) const { return waiting_reads_.contains(file); }
  void RetryWaiters();

 private:
  void QueueEviction(const SessionStore::Saving& saving);
  int64_t limit_bytes() const { return context_.options.memory_limit_bytes; }

  const SchedulerContext& context_;
  int64_t fixed_bytes_;
  const ActiveRequests& active_;
  SessionStore& store_;
  int64_t reading_bytes_ = 0;
  std::vector<std::function<void()>> waiters_;
  std::multiset<std::string> waiting_reads_;  // files of the reads in waiters_
};

}  // namespace winnow::runtime
