#pragma once

#include <cstdint>

#include "base/sanitizer.h"

// The test program's own operator new (allocations.cc) counts allocations and can refuse one.
namespace winnow::testing {

// AddressSanitizer has its own operator new, whose checks are worth more.
#ifdef WINNOW_SANITIZES_MEMORY
constexpr bool kCountsAllocations = false;
#else
constexpr bool kCountsAllocations = true;
#endif

int64_t CountAllocations();  // of all threads so far
// The n-th allocation of this thread from now on throws std::bad_alloc, once; 0: none does.
void RefuseAllocation(int64_t n);
bool WasAllocationRefused();  // since RefuseAllocation

}  // namespace winnow::testing
