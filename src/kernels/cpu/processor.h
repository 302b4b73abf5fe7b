#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace winnow::kernels::cpu {

// Distant parts of a cache that a core reads in turns where that is faster than one after another.
inline constexpr int kStreams = 4;

// How a core reads much memory fastest. What only prefetches must be inlined: GCC 12 takes such a
// function for one without effects and drops the calls to it (tools/check_prefetch.sh).
struct PrefetchPolicy {
  int streams = 1;  // that are read in turns; of a cache 1 or kStreams
  // What is asked for so far ahead comes in time; into L2 or L1.
  int64_t distance_bytes = 0;
  bool into_l2 = false;
  // What is there is asked for once more, so far ahead, into L1; 0: it is not.
  int64_t l1_distance_bytes = 0;

  // Asks for n_bytes from `from` on.
  [[gnu::always_inline]] inline void Fetch(const void* from, int64_t n_bytes) const {
    if (!into_l2) return PrefetchIntoL1(from, n_bytes);
    const char* bytes = static_cast<const char*>(from);
    for (int64_t i = 0; i < n_bytes; i += 64) __builtin_prefetch(bytes + i, 0, 2);
  }
  // The same, always into L1.
  [[gnu::always_inline]] static inline void PrefetchIntoL1(const void* from, int64_t n_bytes) {
    const char* bytes = static_cast<const char*>(from);
    for (int64_t i = 0; i < n_bytes; i += 64) __builtin_prefetch(bytes + i, 0, 3);
  }
  // Asks for what is read so far after n_bytes at `now`.
  [[gnu::always_inline]] inline void PrefetchAhead(const void* now, int64_t n_bytes) const {
    const char* bytes = static_cast<const char*>(now);
    Fetch(bytes + distance_bytes, n_bytes);
    if (l1_distance_bytes > 0) PrefetchIntoL1(bytes + l1_distance_bytes, n_bytes);
  }
  // The same in a part of memory that is read from `begin` on, `size` bytes, of which `at` is now;
  // then what is read `then` on, null: nothing is known of it.
  struct Part {
    const std::byte* begin = nullptr;
    int64_t size = 0;
    const std::byte* then = nullptr;
  };
  [[gnu::always_inline]] inline void PrefetchAheadIn(const Part& part, int64_t at,
                                                     int64_t n_bytes) const {
    const int64_t to_come = part.size - at;
    if (distance_bytes < to_come) {
      PrefetchAhead(part.begin + at, n_bytes);
    } else if (part.then !=
               nullptr) {  // a part shorter than distance_bytes: the same place of `then`
      Fetch(part.then + std::min(distance_bytes, part.size) - to_come, n_bytes);
    }
  }
};

// What kernels do differently from processor to processor. Results are the same but for rounding.
struct Processor {
  int64_t target = 0;  // instruction set, a HWY_* bit
  PrefetchPolicy weights = {};
  PrefetchPolicy kv_cache = {};  // keys and values in decode
};

enum class CpuVendor { kIntel, kAmd, kOther };
// "intel", "amd", "other"; empty: that of the processor this runs on. Nothing: another name.
std::optional<CpuVendor> CpuVendorFromName(std::string_view name);

Processor MakeProcessor(CpuVendor vendor, int64_t target);

}  // namespace winnow::kernels::cpu
