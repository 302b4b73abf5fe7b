#pragma once

#include <cstdint>

namespace winnow {

// Distance, in elements, between lists of n elements of T that are read and written alternately.
// Never a multiple of 4096 bytes: a load would then falsely depend on a recent store at the same
// page offset (4K aliasing).
template <class T>
constexpr int64_t ListStride(int64_t n) {
  constexpr int64_t kPage = 4096 / sizeof(T);
  constexpr int64_t kLine = 64 / sizeof(T);
  return (n + kPage - 1) / kPage * kPage + kLine;
}

}  // namespace winnow
