#pragma once

#include <atomic>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/check.h"
#include "base/result.h"

// Checks of what the memory plan promises about every step of every sequence. The scheduler's
// checks run in all builds, those inside a step in builds with tests, including the release build:
// a few comparisons per layer.
namespace winnow::runtime {

// For checks inside a step. WINNOW_INVARIANTS is defined for the files of this room only, so the
// constant has internal linkage.
#ifdef WINNOW_INVARIANTS
constexpr bool kChecksInvariants = true;
#else
constexpr bool kChecksInvariants = false;
#endif

// Handles broken invariants. Thread-safe.
class Invariants {
 public:
  // survives: only the request that breaks an invariant ends, for servers. Otherwise the process
  // ends, so that tests notice.
  explicit Invariants(bool survives) : survives_(survives) {}

  Error Record(const char* condition, const char* file, int line) {
    if (!survives_) internal::CheckFailed(condition, file, line);
    n_broken_.fetch_add(1, std::memory_order_relaxed);
    // Clients see the message: name the file without the build machine's path.
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

// A Result<void>: the error if the condition does not hold.
#define WINNOW_INVARIANT(invariants, condition) \
  ((condition) ? ::winnow::Result<void>()       \
               : ::winnow::Result<void>((invariants).Record(#condition, __FILE__, __LINE__)))
