#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "runtime/scheduler/scheduler_job.h"

namespace winnow::runtime {

// Waiting requests, ordered by priority, then by arrival.
class WaitingQueue {
 public:
  explicit WaitingQueue(int max_overtakes) : max_overtakes_(max_overtakes) {}

  void Add(std::shared_ptr<Job> job);
  bool empty() const { return jobs_.empty(); }
  size_t size() const { return jobs_.size(); }
  const std::vector<std::shared_ptr<Job>>& jobs() const { return jobs_; }
  bool IsFirst(const Job& job) const { return !jobs_.empty() && jobs_.front().get() == &job; }

  enum class Answer {
    kStarted,  // it has started
    kWaits,    // it does not fit now
    kGone,     // it has ended without starting
  };
  // Offers the requests a start in their order until one starts; false: none did. A waiting request
  // can be overtaken max_overtakes times: after that, later ones are offered no start while it
  // waits, unless ignore_overtake_limit. A request whose session is being read from a file can be
  // overtaken any number of times.
  bool Offer(const std::function<Answer(const std::shared_ptr<Job>& job)>& offer,
             bool ignore_overtake_limit = false);
  // Offers a start to the first request only, or to the next if that has ended: nothing is
  // overtaken.
  bool OfferFirst(const std::function<Answer(const std::shared_ptr<Job>& job)>& offer);

  std::shared_ptr<Job> TakeFirst();  // null: the queue is empty
  // Removes and returns all requests for which `leaves` is true.
  std::vector<std::shared_ptr<Job>> Take(const std::function<bool(const Job& job)>& leaves);

 private:
  int max_overtakes_;
  std::vector<std::shared_ptr<Job>> jobs_;
};

}  // namespace winnow::runtime
