#pragma once

#include <cstdint>

namespace winnow {

// How far apart lists of n elements of T are put that are read and written in turns: never a
// multiple of a page, or a load would be taken for one of what was just stored at the same place of
// another page. In elements.
template <class T>
constexpr int64_t ListStride(int64_t n) {
  constexpr int64_t kPage = 4096 / sizeof(T);
  constexpr int64_t kLine = 64 / sizeof(T);
  return (n + kPage - 1) / kPage * kPage + kLine;
}

}  // namespace winnow
