#include "kernels/cpu/processor.h"

#include <string_view>

#if defined(__x86_64__) || defined(__i386__)
#include <cpuid.h>

#include <cstring>
#endif

namespace winnow::kernels::cpu {
namespace {

#if defined(__x86_64__) || defined(__i386__)
bool MadeBy(std::string_view vendor) {
  unsigned int highest = 0;
  unsigned int words[3];  // the name, four letters each
  if (__get_cpuid(0, &highest, &words[0], &words[2], &words[1]) == 0) return false;
  char found[12];
  std::memcpy(found, words, sizeof(found));
  return std::string_view(found, sizeof(found)) == vendor;
}
#else
bool MadeBy(std::string_view) { return false; }
#endif

}  // namespace

// Measured with two cores (docs/performance.md), GB/s:
//   Sapphire Rapids, whose prefetchers stop at the end of a page: one stream a core 15, four 21.
//   Zen 4: weights 16 with four streams, 27 with one, 38 with one that is fetched far ahead; keys
//   and values 11, 21, 25.
Processor ThisProcessor(int64_t target) {
  Processor processor = {.target = target};
  if (MadeBy("GenuineIntel")) processor.weights.streams = processor.cache.streams = kStreams;
  if (MadeBy("AuthenticAMD")) {
    processor.weights =
        processor.cache = {.streams = 1, .ahead_bytes = 16 << 10, .second_level = true};
  }
  return processor;
}

}  // namespace winnow::kernels::cpu
