#include "server/openai/constraint_queue.h"

#include <algorithm>
#include <exception>
#include <iterator>
#include <string>
#include <utility>
#include <vector>

namespace winnow::server {
namespace {

constexpr size_t kMaxWaiting = 64;
// So often other jobs go before one that is to be begun again.
constexpr int kMaxOvertakes = 8;

ApiError Ending() {
  return {.status = 503, .message = "the server is shutting down", .code = "unavailable"};
}

ConstraintQueue::Outcome Made(const ConstraintFactory& factory, const ConstraintSpec& spec,
                              const std::function<bool()>& cancelled) {
  // Running out of memory ends this request, not the thread.
  try {
    auto made = factory.Make(spec, cancelled);
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

// Moves those whose clients have gone to `gone`.
void RemoveCancelled(std::deque<ConstraintQueue::Job>& jobs,
                     std::vector<ConstraintQueue::Job>& gone) {
  const auto has_client = [](const ConstraintQueue::Job& job) { return !job.cancelled(); };
  const auto first = std::stable_partition(jobs.begin(), jobs.end(), has_client);
  std::move(first, jobs.end(), std::back_inserter(gone));
  jobs.erase(first, jobs.end());
}

}  // namespace

ConstraintQueue::ConstraintQueue(std::shared_ptr<const ConstraintFactory> factory,
                                 std::chrono::milliseconds patience)
    : factory_(std::move(factory)), patience_(patience) {}

ConstraintQueue::~ConstraintQueue() { Stop(); }

void ConstraintQueue::Make(Job job) {
  const std::string field = job.spec.field;
  std::vector<Job> gone;  // destroyed after the lock is released
  std::unique_lock lock(mutex_);
  if (stopped_) {
    lock.unlock();
    return job.done(Ending());
  }
  const auto is_full = [&] { return waiting_.size() + again_.size() >= kMaxWaiting; };
  if (is_full()) {
    RemoveCancelled(waiting_, gone);
    RemoveCancelled(again_, gone);
  }
  if (is_full()) {
    lock.unlock();
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
  ++n_made_;
  changed_.notify_one();
}

void ConstraintQueue::Run() {
  int n_overtakes = 0;  // jobs that went before one that is to be begun again
  for (;;) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return stopped_ || !waiting_.empty() || !again_.empty(); });
    if (stopped_) return;
    const bool for_good = waiting_.empty() || (!again_.empty() && n_overtakes >= kMaxOvertakes);
    n_overtakes = for_good || again_.empty() ? 0 : n_overtakes + 1;
    std::deque<Job>& jobs = for_good ? again_ : waiting_;
    Job job = std::move(jobs.front());
    jobs.pop_front();
    lock.unlock();
    // An exception, of a callback or for want of memory, ends its job, not the thread that serves
    // all jobs.
    try {
      if (!Do(job, for_good)) DoAgainLater(std::move(job));
    } catch (const std::exception&) {
      continue;
    }
  }
}

// Those that wait for the same constraint would take as long.
void ConstraintQueue::DoAgainLater(Job job) {
  std::unique_lock lock(mutex_);
  if (stopped_) {
    lock.unlock();
    return job.done(Ending());
  }
  const auto is_other = [&](const Job& other) { return other.spec != job.spec; };
  const auto first = std::stable_partition(waiting_.begin(), waiting_.end(), is_other);
  again_.push_back(std::move(job));
  std::move(first, waiting_.end(), std::back_inserter(again_));
  waiting_.erase(first, waiting_.end());
}

bool ConstraintQueue::Do(const Job& job, bool for_good) {
  if (job.cancelled()) return true;
  const auto start = std::chrono::steady_clock::now();
  bool gives_way = false;
  int64_t n_seen = 0;
  Outcome made = Made(*factory_, job.spec, [&] {
    if (stopped_ || job.cancelled()) return true;
    if (for_good || std::chrono::steady_clock::now() - start < patience_) return false;
    const std::lock_guard lock(mutex_);
    if (std::exchange(n_seen, n_made_) == n_made_) return false;
    gives_way =
        std::ranges::any_of(waiting_, [&](const Job& other) { return other.spec != job.spec; });
    return gives_way;
  });
  if (stopped_) {
    job.done(Ending());
  } else if (!job.cancelled()) {
    const bool is_made = std::holds_alternative<std::unique_ptr<runtime::TokenConstraint>>(made);
    if (gives_way && !is_made) return false;
    job.done(std::move(made));
  }
  return true;
}

void ConstraintQueue::Stop() {
  std::deque<Job> left;
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
    left.swap(waiting_);
    std::move(again_.begin(), again_.end(), std::back_inserter(left));
    again_.clear();
  }
  changed_.notify_all();
  for (const Job& job : left) job.done(Ending());
  if (thread_.joinable()) thread_.join();
}

}  // namespace winnow::server
