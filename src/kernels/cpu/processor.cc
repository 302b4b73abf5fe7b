#include "kernels/cpu/processor.h"

#include <hwy/targets.h>

#include <string_view>

#if defined(__x86_64__) || defined(__i386__)
#include <cpuid.h>

#include <cstring>
#endif

namespace winnow::kernels::cpu {
namespace {

#if defined(__x86_64__) || defined(__i386__)
bool VendorIs(std::string_view vendor) {
  unsigned int highest = 0;
  unsigned int words[3];  // the vendor name, four letters each
  if (__get_cpuid(0, &highest, &words[0], &words[2], &words[1]) == 0) return false;
  char found[12];
  std::memcpy(found, words, sizeof(found));
  return std::string_view(found, sizeof(found)) == vendor;
}
#else
bool VendorIs(std::string_view) { return false; }
#endif

CpuVendor HostVendor() {
  if (VendorIs("GenuineIntel")) return CpuVendor::kIntel;
  if (VendorIs("AuthenticAMD")) return CpuVendor::kAmd;
  return CpuVendor::kOther;
}

}  // namespace

std::optional<CpuVendor> CpuVendorFromName(std::string_view name) {
  if (name.empty()) return HostVendor();
  if (name == "intel") return CpuVendor::kIntel;
  if (name == "amd") return CpuVendor::kAmd;
  if (name == "other") return CpuVendor::kOther;
  return std::nullopt;
}

// Measured with two cores (docs/performance.md):
//   Sapphire Rapids, whose prefetchers stop at page ends: 15 GB/s per core with one stream, 21 with
//   four.
//   Zen 4: weights 27 GB/s with one stream, 16 with four; decode is as fast with several distances.
//   Keys and values 21 GB/s with one stream, 11 with four, 24 to 28 when prefetched far ahead into
//   L2; with Q8_0 that takes 0.6 of the time without prefetching.
//   Zen 3: two streams decode up to 1.18 times as fast as one. Three reached 1.27 on a host with
//   24 GB/s, but were up to a quarter slower than two on a host with 32 GB/s. Distances: not
//   measured.
Processor MakeProcessor(CpuVendor vendor, int64_t target) {
  Processor processor = {.target = target,
                         .weights = {.streams = 1, .distance_bytes = 2048},
                         .kv_cache = {.streams = 1, .distance_bytes = 1024}};
  switch (vendor) {
    case CpuVendor::kIntel:
      processor.weights.streams = processor.kv_cache.streams = kStreams;
      break;
    case CpuVendor::kAmd:
      if (target < HWY_AVX2) {  // 512-bit vectors: Zen 4
        processor.weights = {
            .streams = 1, .distance_bytes = 8192, .into_l2 = true, .l1_distance_bytes = 1024};
      } else {
        processor.weights = {.streams = 2, .distance_bytes = 2048};
      }
      processor.kv_cache = {.streams = 1, .distance_bytes = 8192, .into_l2 = true};
      break;
    case CpuVendor::kOther:
      break;
  }
  return processor;
}

}  // namespace winnow::kernels::cpu
