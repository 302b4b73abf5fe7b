#pragma once

#include <cstdint>

namespace winnow::kernels::cpu {

// How a core reads much memory fastest.
struct Reading {
  // So many distant parts in turns: 1 or kStreams.
  int streams = 1;
  // What is asked for so far ahead comes in time; into the second-level cache or the first.
  int64_t ahead_bytes = 0;
  bool second_level = false;

  void FetchAhead(const void* now, int64_t n_bytes) const {
    const char* from = static_cast<const char*>(now) + ahead_bytes;
    if (second_level) {
      for (int64_t i = 0; i < n_bytes; i += 64) __builtin_prefetch(from + i, 0, 2);
    } else {
      for (int64_t i = 0; i < n_bytes; i += 64) __builtin_prefetch(from + i, 0, 3);
    }
  }
};
inline constexpr int kStreams = 4;

// What kernels do differently from processor to processor. Results are the same but for rounding.
struct Processor {
  int64_t target = 0;  // instruction set, a HWY_* bit
  Reading weights = {.streams = 1, .ahead_bytes = 2048};
  Reading cache = {.streams = 1, .ahead_bytes = 1024};  // keys and values in decode
};

// The one this runs on.
Processor ThisProcessor(int64_t target);

}  // namespace winnow::kernels::cpu
