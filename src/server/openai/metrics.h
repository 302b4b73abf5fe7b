#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>
#include <string_view>

#include "runtime/scheduler/scheduler_types.h"
#include "server/openai/backend.h"

namespace winnow::server {

// A Prometheus histogram of seconds.
class Histogram {
 public:
  static constexpr std::array<double, 16> kBounds = {
      0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300};
  void Add(double seconds);
  // Writes lines of the text format under `name`, with HELP and TYPE. `label`: `a="b"`, or empty.
  void Write(std::string& out, std::string_view name, std::string_view help,
             std::string_view label = "") const;

 private:
  std::array<uint64_t, kBounds.size() + 1> counts_ = {};  // by bucket; the last: above all bounds
  uint64_t n_ = 0;
  double sum_ = 0;
};

// Counts what the scheduler's state does not. Thread-safe.
class Metrics {
 public:
  void OnResponse(int status);
  void OnFirstToken(double seconds);  // since the request arrived
  void OnNextToken(double seconds);   // since the previous token
  void OnFinished(double seconds);    // since the request arrived
  void OnQueued(double seconds);
  void OnCache(const runtime::CacheReport& cache);  // of a finished answer

  // GET /metrics: winnow_*, llamacpp:* and vllm:* names.
  std::string Text(const runtime::SchedulerState& state, const ModelInfo& model) const;

 private:
  mutable std::mutex mutex_;
  std::map<int, uint64_t> replies_;  // by status
  Histogram first_token_, next_token_, finished_, queued_;
  double kept_share_ = 1;   // of the last answer
  int64_t max_tokens_ = 0;  // seen by one sequence
};

}  // namespace winnow::server
