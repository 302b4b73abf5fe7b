#include "base/testing/allocations.h"

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <new>

namespace {
std::atomic<int64_t> n_allocations{0};
thread_local int64_t until_refused = 0;
thread_local bool was_refused = false;
}  // namespace

namespace winnow::testing {

int64_t CountAllocations() { return n_allocations.load(std::memory_order_relaxed); }

void RefuseAllocation(int64_t n) {
  until_refused = n;
  was_refused = false;
}

bool WasAllocationRefused() { return was_refused; }

}  // namespace winnow::testing

#ifndef WINNOW_SANITIZES_MEMORY
static void* Allocate(std::size_t n_bytes, std::size_t alignment) {
  n_allocations.fetch_add(1, std::memory_order_relaxed);
  if (until_refused > 0 && --until_refused == 0) {
    was_refused = true;
    throw std::bad_alloc();
  }
  const std::size_t rounded = (n_bytes + alignment - 1) / alignment * alignment;
  return std::aligned_alloc(alignment, rounded == 0 ? alignment : rounded);
}

// Not inlined: g++ 12 would take the free() of an inlined delete for a mismatch with new.
#define NOINLINE [[gnu::noinline]]
NOINLINE void* operator new(std::size_t n_bytes) {
  return Allocate(n_bytes, alignof(std::max_align_t));
}
NOINLINE void* operator new(std::size_t n_bytes, std::align_val_t alignment) {
  return Allocate(n_bytes, static_cast<std::size_t>(alignment));
}
NOINLINE void operator delete(void* memory) noexcept { std::free(memory); }
NOINLINE void operator delete(void* memory, std::size_t) noexcept { std::free(memory); }
NOINLINE void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
NOINLINE void operator delete(void* memory, std::size_t, std::align_val_t) noexcept {
  std::free(memory);
}
#undef NOINLINE
#endif
