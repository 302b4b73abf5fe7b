#include "runtime/scheduler/scheduler_queue.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace winnow::runtime {

void WaitingQueue::Add(std::shared_ptr<Job> job) {
  const int priority = job->request.priority;
  const auto place = std::ranges::find_if(
      jobs_, [&](const std::shared_ptr<Job>& other) { return other->request.priority < priority; });
  jobs_.insert(place, std::move(job));
}

bool WaitingQueue::Offer(const std::function<Answer(const std::shared_ptr<Job>& job)>& offer,
                         bool ignore_overtake_limit) {
  for (size_t i = 0; i < jobs_.size();) {
    const std::shared_ptr<Job> job = jobs_[i];
    const Answer answer = offer(job);
    if (answer == Answer::kWaits) {
      if (job->n_overtaken >= max_overtakes_ && !job->loading && !ignore_overtake_limit)
        return false;
      ++i;
      continue;
    }
    jobs_.erase(jobs_.begin() + static_cast<std::ptrdiff_t>(i));
    if (answer == Answer::kGone) continue;
    for (size_t passed = 0; passed < i; ++passed) {
      if (!jobs_[passed]->loading) ++jobs_[passed]->n_overtaken;
    }
    return true;
  }
  return false;
}

bool WaitingQueue::OfferFirst(const std::function<Answer(const std::shared_ptr<Job>& job)>& offer) {
  while (!jobs_.empty()) {
    const std::shared_ptr<Job> job = jobs_.front();
    const Answer answer = offer(job);
    if (answer == Answer::kWaits) return false;
    jobs_.erase(jobs_.begin());
    if (answer == Answer::kStarted) return true;
  }
  return false;
}

std::shared_ptr<Job> WaitingQueue::TakeFirst() {
  if (jobs_.empty()) return nullptr;
  std::shared_ptr<Job> job = std::move(jobs_.front());
  jobs_.erase(jobs_.begin());
  return job;
}

std::vector<std::shared_ptr<Job>> WaitingQueue::Take(
    const std::function<bool(const Job& job)>& leaves) {
  // Into new lists: an exception leaves the queue as it was.
  std::vector<std::shared_ptr<Job>> taken, left;
  for (const std::shared_ptr<Job>& job : jobs_) (leaves(*job) ? taken : left).push_back(job);
  if (!taken.empty()) jobs_ = std::move(left);
  return taken;
}

}  // namespace winnow::runtime
