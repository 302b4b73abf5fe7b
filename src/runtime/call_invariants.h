#pragma once

#include <cstdint>
#include <limits>
#include <optional>
#include <vector>

#include "base/result.h"
#include "cache/cache.h"
#include "runtime/invariants.h"

namespace winnow::runtime {

// Checks the current call of a sequence against its memory plans. Does nothing in builds without
// tests.
class CallInvariants {
 public:
  // In live bytes.
  struct Limits {
    int64_t memory = 0;   // the user's limit; 0: none
    int64_t planned = 0;  // the peak of the prompt or the active step
    int64_t reserved = std::numeric_limits<int64_t>::max();  // reserved for the sequence
  };

  // `invariants` must outlive this object.
  explicit CallInvariants(Invariants& invariants) : invariants_(invariants) {}

  void BeginCall() { violation_.reset(); }
  void CheckBytes(const cache::Cache& cache, const Limits& limits);
  // The same if no other layer has changed since the last check of this call: a step checks after
  // every layer and need not count all layers each time.
  void CheckBytes(const cache::Cache& cache, int layer, const Limits& limits);
  // Checks that layers hold no more than the method states.
  void CheckSizes(bool keeps_sizes);
  // The first violation in this call, if any.
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
