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
  unsigned int words[3];  // the name, four letters each
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
//   Sapphire Rapids, whose prefetchers stop at the end of a page: one stream a core 15 GB/s,
//   four 21.
//   Zen 4: weights 16 with four streams, 27 with one; several distances decode alike. Keys and
//   values 11 with four streams, 21 with one, 24 to 28 when asked for far ahead into the second
//   level; those in 8 bits take 0.6 of the time without.
//   Zen 3: two streams decode up to 1.18 times as fast as one. Three reached 1.27 on a host that
//   read 24 GB/s and lost up to a quarter to two on one that read 32. Distances: not measured.
Processor MakeProcessor(CpuVendor vendor, int64_t target) {
  Processor processor = {.target = target,
                         .weights = {.streams = 1, .distance_bytes = 2048},
                         .kv_cache = {.streams = 1, .distance_bytes = 1024}};
  switch (vendor) {
    case CpuVendor::kIntel:
      processor.weights.streams = processor.kv_cache.streams = kStreams;
      break;
    case CpuVendor::kAmd:
      if (target < HWY_AVX2) {  // vectors of 512 bits
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
