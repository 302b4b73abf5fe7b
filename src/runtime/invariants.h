#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "base/result.h"

// What the numbers of the memory plan promise about every step of every sequence. The scheduler's
// are checked in all builds, those inside a step in builds with tests, the release build among
// them: a few comparisons a layer.
namespace winnow::runtime {

// Inside a step; internal to each source file, as only those of this room know.
#ifdef WINNOW_INVARIANTS
constexpr bool kChecksInvariants = true;
#else
constexpr bool kChecksInvariants = false;
#endif

// What becomes of one that does not hold. Thread-safe.
class Invariants {
 public:
  // survives: only the request that breaks one ends, for servers. Otherwise the process does, so
  // that tests notice.
  explicit Invariants(bool survives) : survives_(survives) {}

  Error Record(const char* condition, const char* file, int line) {
    if (!survives_) internal::CheckFailed(condition, file, line);
    n_broken_.fetch_add(1, std::memory_order_relaxed);
    // Clients see it: the name of the file, not where it lay when it was compiled.
    const std::string_view path = file;
    return Error{std::string("bug: ") + condition + " does not hold (" +
                 std::string(path.substr(path.rfind('/') + 1)) + ":" + std::to_string(line) + ")"};
  }
  int64_t n_broken() const { return n_broken_.load(std::memory_order_relaxed); }

 private:
  const bool survives_;
  std::atomic<int64_t> n_broken_ = 0;
};

}  // namespace winnow::runtime

// The error of a condition that does not hold, a Result<void>.
#define WINNOW_INVARIANT(invariants, condition) \
  ((condition) ? ::winnow::Result<void>()       \
               : ::winnow::Result<void>((invariants).Record(#condition, __FILE__, __LINE__)))
