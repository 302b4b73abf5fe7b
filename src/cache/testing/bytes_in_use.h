#pragma once

#include <cstdint>
#if defined(__GLIBC__) || __has_include(<malloc.h>)
#include <malloc.h>
#endif

#include "base/sanitizer.h"

namespace winnow::cache::testing {

// Bytes of the heap allocated and not freed; -1 if the allocator does not report them.
inline int64_t BytesInUse() {
#if defined(__GLIBC__) && !defined(WINNOW_SANITIZES_MEMORY)
#if __GLIBC_PREREQ(2, 33)
  const struct mallinfo2 info = mallinfo2();
  return static_cast<int64_t>(info.uordblks + info.hblkhd);
#endif
#endif
  return -1;
}

}  // namespace winnow::cache::testing
