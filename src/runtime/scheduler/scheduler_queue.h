#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "runtime/scheduler/scheduler_job.h"

namespace winnow::runtime {

// Requests that wait for their turn: by priority, then by age.
class WaitingQueue {
 public:
  explicit WaitingQueue(int max_overtakes) : max_overtakes_(max_overtakes) {}

  void Add(std::shared_ptr<Job> job);
  bool empty() const { return jobs_.empty(); }
  size_t size() const { return jobs_.size(); }
  const std::vector<std::shared_ptr<Job>>& jobs() const { return jobs_; }
  bool IsFirst(const Job& job) const { return !jobs_.empty() && jobs_.front().get() == &job; }

  enum class Answer {
    kStarted,  // it has its turn
    kWaits,    // it does not fit now
    kGone,     // it has ended without one
  };
  // Offers a turn to the requests in their order until one starts; false: none did. A waiting
  // request is passed at most max_overtakes times: later ones are not offered a turn then, unless
  // asks_all. Requests whose session is being read from a file do not count as waiting.
  bool Offer(const std::function<Answer(const std::shared_ptr<Job>& job)>& offer,
             bool asks_all = false);
  // Offers a turn to the first one only, which may not be overtaken here.
  bool OfferFirst(const std::function<Answer(const std::shared_ptr<Job>& job)>& offer);

  std::shared_ptr<Job> TakeFirst();  // null: there is none
  // Takes out all that `leaves` holds for.
  std::vector<std::shared_ptr<Job>> Take(const std::function<bool(const Job& job)>& leaves);

 private:
  int max_overtakes_;
  std::vector<std::shared_ptr<Job>> jobs_;
};

}  // namespace winnow::runtime
