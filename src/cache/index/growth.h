#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace winnow::cache {

// Lists grow by a sixteenth: decode steps rarely allocate, and little of a list is unused.
inline size_t Growth(size_t n) { return std::max<size_t>(48, n / 16); }

// Makes room for n more values.
template <class T>
void GrowBy(std::vector<T>& values, size_t n) {
  const size_t wanted = values.size() + n;
  if (wanted > values.capacity()) values.reserve(wanted + Growth(wanted));
}

// Frees unused memory if it is more than twice what growing would have left.
template <class T>
void ShrinkIfLoose(std::vector<T>& values) {
  const size_t n = values.size();
  if (values.capacity() > n + 2 * Growth(n)) values.shrink_to_fit();
}

}  // namespace winnow::cache
