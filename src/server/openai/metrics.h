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

// A histogram of seconds as Prometheus has them.
class Histogram {
 public:
  static constexpr std::array<double, 16> kBounds = {
      0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 300};
  void Add(double seconds);
  // Lines of the text format under `name`, HELP and TYPE included. `label`: `a="b"`, or nothing.
  void Write(std::string& out, std::string_view name, std::string_view help,
             std::string_view label = "") const;

 private:
  std::array<uint64_t, kBounds.size() + 1> counts_ = {};  // of each bucket; the last one: beyond
  uint64_t n_ = 0;
  double sum_ = 0;
};

// What the protocol counts itself. Thread-safe.
class Metrics {
 public:
  void OnReply(int status);
  void OnFirstToken(double seconds);  // since the request came
  void OnNextToken(double seconds);   // since the token before it
  void OnFinished(double seconds);    // since the request came
  void OnQueued(double seconds);
  void OnCache(const runtime::CacheReport& cache);  // of an answer that has ended

  // GET /metrics: winnow_*, llamacpp:* and vllm:* names.
  std::string Text(const runtime::SchedulerState& state, const ModelInfo& model) const;

 private:
  mutable std::mutex mutex_;
  std::map<int, uint64_t> replies_;  // by status
  Histogram first_token_, next_token_, finished_, queued_;
  double kept_share_ = 1;   // of the last answer
  int64_t max_tokens_ = 0;  // that a sequence has seen
};

}  // namespace winnow::server
