#pragma once

#include <cstdio>
#include <cstdlib>

// For errors that only a bug can cause. Errors from outside the program return a Result instead.
namespace winnow::internal {
[[noreturn]] inline void CheckFailed(const char* condition, const char* file, int line) {
  std::fprintf(stderr, "winnow: bug: %s does not hold (%s:%d)\n", condition, file, line);
  std::abort();
}
}  // namespace winnow::internal

#define WINNOW_CHECK(condition) \
  ((condition) ? (void)0 : ::winnow::internal::CheckFailed(#condition, __FILE__, __LINE__))

// For inner loops: checked only in builds without NDEBUG.
#ifdef NDEBUG
#define WINNOW_DCHECK(condition) ((void)0)
#else
#define WINNOW_DCHECK(condition) WINNOW_CHECK(condition)
#endif
