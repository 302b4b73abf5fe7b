#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>

namespace winnow::kernels::cpu {

// Streams of a KV cache on CPUs that read several interleaved streams faster than one.
inline constexpr int kStreams = 4;

// How a kernel reads memory that is larger than the caches. Helpers that only prefetch must be
// `always_inline`: GCC 12 treats such a function as pure and deletes its calls
// (tools/check_prefetch.sh).
struct PrefetchPolicy {
  int streams = 1;             // interleaved; 1 or kStreams for a KV cache
  int64_t distance_bytes = 0;  // how far ahead of the read to prefetch
  bool into_l2 = false;        // into the L2 cache, otherwise into L1
  // With into_l2: prefetch into L1 too, this far ahead. 0: do not.
  int64_t l1_distance_bytes = 0;

  // Prefetches the n_bytes at `from`.
  [[gnu::always_inline]] inline void Fetch(const void* from, int64_t n_bytes) const {
    if (!into_l2) return PrefetchIntoL1(from, n_bytes);
    const char* bytes = static_cast<const char*>(from);
    for (int64_t i = 0; i < n_bytes; i += 64) __builtin_prefetch(bytes + i, 0, 2);
  }
  // Prefetches into L1.
  [[gnu::always_inline]] static inline void PrefetchIntoL1(const void* from, int64_t n_bytes) {
    const char* bytes = static_cast<const char*>(from);
    for (int64_t i = 0; i < n_bytes; i += 64) __builtin_prefetch(bytes + i, 0, 3);
  }
  // Prefetches what will be read distance_bytes after the n_bytes at `now`.
  [[gnu::always_inline]] inline void PrefetchAhead(const void* now, int64_t n_bytes) const {
    const char* bytes = static_cast<const char*>(now);
    Fetch(bytes + distance_bytes, n_bytes);
    if (l1_distance_bytes > 0) PrefetchIntoL1(bytes + l1_distance_bytes, n_bytes);
  }
  // A region of memory that is read from start to end.
  struct Part {
    const std::byte* begin = nullptr;
    int64_t size = 0;
    const std::byte* then = nullptr;  // what is read next; null: unknown
  };
  // PrefetchAhead at offset `at` of a region; past its end it continues in part.then.
  [[gnu::always_inline]] inline void PrefetchAheadIn(const Part& part, int64_t at,
                                                     int64_t n_bytes) const {
    const int64_t to_come = part.size - at;
    if (distance_bytes < to_come) {
      PrefetchAhead(part.begin + at, n_bytes);
    } else if (part.then != nullptr) {
      // A region shorter than distance_bytes: prefetch at the same offset in part.then.
      Fetch(part.then + std::min(distance_bytes, part.size) - to_come, n_bytes);
    }
  }
};

// Settings of kernels that differ between CPUs. Results differ by rounding only.
struct Processor {
  int64_t target = 0;  // instruction set, a HWY_* bit
  // The CPU has AVX512_BF16, and the target is AVX3_DL: BF16 weights may be multiplied by
  // Bf16TilesFor.
  bool multiplies_bf16 = false;
  PrefetchPolicy weights = {};
  PrefetchPolicy kv_cache = {};  // keys and values in decode
};

// CPUs with settings of their own. kAmd: AMD before Zen 5; kZen5: AMD from there on.
enum class CpuFamily { kIntel, kAmd, kZen5, kOther };
// "intel", "amd", "zen5", "other"; empty: the family of this CPU. nullopt: an unknown name.
std::optional<CpuFamily> CpuFamilyFromName(std::string_view name);

Processor MakeProcessor(CpuFamily family, int64_t target);

}  // namespace winnow::kernels::cpu
