#include "server/openai/constraint_queue.h"

#include <exception>
#include <string>
#include <utility>

namespace winnow::server {
namespace {

constexpr size_t kMaxWaiting = 64;

ApiError Ending() {
  return {.status = 503, .message = "the server is shutting down", .code = "unavailable"};
}

ConstraintQueue::Outcome Made(const ConstraintFactory& factory, const ConstraintSpec& spec) {
  // Running out of memory ends this request, not the thread.
  try {
    auto made = factory.Make(spec);
    if (made) return std::move(made).value();
    return ApiError{
        .status = 400, .message = spec.field + ": " + made.error().message, .param = spec.field};
  } catch (const std::exception& problem) {
    return ApiError{.status = 500,
                    .message = spec.field + ": " + problem.what(),
                    .param = spec.field,
                    .code = "internal_error"};
  }
}

}  // namespace

ConstraintQueue::ConstraintQueue(std::shared_ptr<const ConstraintFactory> factory)
    : factory_(std::move(factory)) {}

ConstraintQueue::~ConstraintQueue() { Stop(); }

void ConstraintQueue::Make(Job job) {
  const std::string field = job.spec.field;
  std::unique_lock lock(mutex_);
  if (stopped_ || waiting_.size() >= kMaxWaiting) {
    const bool stopped = stopped_;
    lock.unlock();
    if (stopped) return job.done(Ending());
    return job.done(
        ApiError{.status = 429,
                 .message = std::to_string(kMaxWaiting) +
                            " schemas and grammars wait to be compiled; try again later",
                 .param = field,
                 .code = "queue_full"});
  }
  // Start the thread first, so that no job waits if it cannot start. It waits for the lock.
  if (!thread_.joinable()) thread_ = std::thread([this] { Run(); });
  waiting_.push_back(std::move(job));
  changed_.notify_one();
}

void ConstraintQueue::Run() {
  for (;;) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return stopped_ || !waiting_.empty(); });
    if (stopped_) return;
    const Job job = std::move(waiting_.front());
    waiting_.pop_front();
    lock.unlock();
    // An exception from a callback ends its job, not the thread that serves all jobs.
    try {
      if (!job.cancelled()) job.done(Made(*factory_, job.spec));
    } catch (const std::exception&) {
    }
  }
}

void ConstraintQueue::Stop() {
  std::deque<Job> left;
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    left.swap(waiting_);
  }
  changed_.notify_all();
  for (const Job& job : left) job.done(Ending());
  if (thread_.joinable()) thread_.join();
}

}  // namespace winnow::server
