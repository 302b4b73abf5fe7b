#pragma once

#include <cstdint>

namespace winnow::kernels::cpu {

// How far ahead weights are asked for, and into which cache: the second level or the first.
struct WeightFetch {
  int64_t ahead_bytes = 2048;
  bool second_level = false;
};

// What kernels do differently from processor to processor. Results are the same bit by bit.
struct Processor {
  int64_t target = 0;  // instruction set, a HWY_* bit
  // Where a core reads a weight at the same time: so many distant parts, a row of each in turns.
  int weight_streams = 1;
  WeightFetch weight_fetch = {};
};

// The one this runs on.
Processor ThisProcessor(int64_t target);

}  // namespace winnow::kernels::cpu
