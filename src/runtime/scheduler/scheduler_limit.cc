#include "runtime/scheduler/scheduler_limit.h"

#include <exception>
#include <utility>

namespace winnow::runtime {

int64_t MemoryLimit::ReservedBytes() const {
  return reading_bytes_ + active_.ReservedBytes() + store_.bytes();
}

bool MemoryLimit::Free(int64_t n_bytes, const SessionStore::EvictionFilter& spared) {
  if (limit_bytes() == 0) return true;
  const auto free = [&] { return limit_bytes() - fixed_bytes_ - ReservedBytes(); };
  if (n_bytes > free() + store_.evicting_bytes() + store_.EvictableBytes(spared)) return false;
  using Kind = SessionStore::Eviction::Kind;
  while (n_bytes > free() + store_.evicting_bytes()) {
    const SessionStore::Eviction eviction = store_.Evict(spared);
    if (eviction.kind == Kind::kNone) return false;
    if (eviction.kind == Kind::kGone) continue;
    QueueEviction(eviction.saving);
  }
  return n_bytes <= free();
}

void MemoryLimit::QueueEviction(const SessionStore::Saving& saving) {
  try {
    context_.queue_file_task(saving.write, [this, saving](const RequestError* error) {
      store_.EndEvict(saving, error);
    });
  } catch (const std::exception&) {  // the store counts it as begun
    const RequestError error = {ErrorKind::kInternal};
    store_.EndEvict(saving, &error);
    throw;
  }
}

RequestError MemoryLimit::OutOfMemory(const std::string& what, int64_t n_bytes,
                                      int64_t n_beside) const {
  const int64_t needed = fixed_bytes_ + n_beside + n_bytes;
  if (needed > limit_bytes()) {
    return {ErrorKind::kTooLarge, what + " needs up to " + BytesAndLimit(needed, limit_bytes())};
  }
  return {ErrorKind::kQueueFull, what + " needs up to " + std::to_string(n_bytes) +
                                     " bytes, which running requests and files hold"};
}

void MemoryLimit::WaitToRead(const std::string& file, std::function<void()> again) {
  const auto waiting = waiting_reads_.insert(file);
  try {
    waiters_.emplace_back([this, waiting, again = std::move(again)] {
      waiting_reads_.erase(waiting);
      again();
    });
  } catch (const std::exception&) {
    waiting_reads_.erase(waiting);
    throw;
  }
}

void MemoryLimit::RetryWaiters() {
  for (const auto& again : std::exchange(waiters_, {}))
    Try(context_.log, "a wait for memory", "", again);
}

}  // namespace winnow::runtime
