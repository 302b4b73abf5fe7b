#pragma once

#include <cstdint>
#include <functional>
#include <limits>
#include <stdexcept>
#include <string>

// Limits of xgrammar's work. xgrammar cannot be interrupted, so xgrammar_work.cmake adds calls of
// CountWork and CountEdges to its sources; these throw once a limit is exceeded. (C++17, as they
// are.)
namespace winnow::grammar {

// `n` steps of the parser or of a pass over an automaton.
void CountWork(int64_t n);
// `n` new states or edges of an automaton, which also take memory.
void CountEdges(int64_t n);

// Thrown through xgrammar. what(): "takes more than ...".
class WorkStopped : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

struct WorkLimits {
  double max_ms = 0;                                        // CPU time
  int64_t max_edges = std::numeric_limits<int64_t>::max();  // states and edges of automata
  std::function<bool()> cancelled = {};  // called often; the work stops once it returns true
};

// Limits xgrammar's work on this thread during its lifetime, and measures it. Another one that
// exists already is suspended meanwhile.
class WorkLimit {
 public:
  explicit WorkLimit(WorkLimits limits);
  ~WorkLimit();
  WorkLimit(const WorkLimit&) = delete;
  WorkLimit& operator=(const WorkLimit&) = delete;

  double ms() const;                         // CPU time so far
  bool stopped() const { return stopped_; }  // the work was stopped

 private:
  friend void CountWork(int64_t n);
  friend void CountEdges(int64_t n);
  void Check();
  [[noreturn]] void Stop(const std::string& why);

  const WorkLimits limits_;
  const double start_ms_;
  int64_t n_edges_ = 0;
  bool stopped_ = false;
  WorkLimit* const suspended_;
};

}  // namespace winnow::grammar
