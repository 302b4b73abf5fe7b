#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "base/result.h"
#include "cache/cache.h"
#include "runtime/invariants.h"

namespace winnow::runtime {

// What the plans of a sequence promise about the current call. Does nothing in builds without
// tests.
class CallInvariants {
 public:
  // In live bytes.
  struct Limits {
    int64_t memory = 0;   // that a user gave; 0: none
    int64_t planned = 0;  // the peak of the prompt or the active step
    int64_t reserved = std::numeric_limits<int64_t>::max();  // of the batch it is part of
  };

  // `invariants` outlive this.
  explicit CallInvariants(Invariants& invariants) : invariants_(invariants) {}

  void BeginCall() { violation_.reset(); }
  void CheckBytes(const cache::Cache& cache, const Limits& limits);
  // The same where no other layer has changed since the last check of this call: a step has a
  // check for every layer, and does not count all layers each time.
  void CheckBytes(const cache::Cache& cache, int layer, const Limits& limits);
  // That layers hold what the method states of them.
  void CheckSizes(bool keeps_sizes);
  // In this call.
  Result<void> FirstViolation() const;

 private:
  void CheckLimits(const Limits& limits);
  void Record(const Result<void>& holds);

  Invariants& invariants_;
  std::vector<int64_t> layer_bytes_;  // [layer] live when last checked
  int64_t live_bytes_ = 0;            // of all layers
  std::optional<Error> violation_;
};

}  // namespace winnow::runtime
