#include "grammar/work_limit.h"

#include <time.h>

#include <utility>

namespace winnow::grammar {
namespace {

// Reading the clock takes 0.2 us; this much work takes 5 us to a few milliseconds.
constexpr int64_t kWorkPerCheck = 1024;

// xgrammar passes no context to the places that count, so these belong to the thread.
thread_local WorkLimit* current = nullptr;
thread_local int64_t n_until_check = kWorkPerCheck;

double ThreadCpuMs() {
  struct timespec now = {};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return 1e3 * static_cast<double>(now.tv_sec) + 1e-6 * static_cast<double>(now.tv_nsec);
}

}  // namespace

WorkLimit::WorkLimit(WorkLimits limits)
    : limits_(std::move(limits)), start_ms_(ThreadCpuMs()), suspended_(current) {
  current = this;
}

WorkLimit::~WorkLimit() { current = suspended_; }

double WorkLimit::ms() const { return ThreadCpuMs() - start_ms_; }

void WorkLimit::Check() {
  if (n_edges_ > limits_.max_edges) {
    Stop("needs automata of more than " + std::to_string(limits_.max_edges) +
         " states and edges; shorter texts and fewer repetitions need less");
  }
  if (limits_.cancelled && limits_.cancelled()) Stop("is no longer wanted");
  if (ms() > limits_.max_ms) {
    Stop("takes more than " + std::to_string(static_cast<int64_t>(limits_.max_ms)) +
         " ms of computing; fewer optional or repeated parts and shorter texts are faster");
  }
}

void WorkLimit::Stop(const std::string& why) {
  stopped_ = true;
  throw WorkStopped(why);
}

void CountWork(int64_t n) {
  n_until_check -= n;
  if (n_until_check > 0) return;
  n_until_check = kWorkPerCheck;
  if (current != nullptr) current->Check();
}

void CountEdges(int64_t n) {
  if (current != nullptr) current->n_edges_ += n;
  CountWork(n);
}

}  // namespace winnow::grammar
