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

// The vendor's number of the family: 0x19 for Zen 3 and Zen 4, 0x1a for Zen 5.
unsigned int FamilyNumber() {
  unsigned int signature = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid(1, &signature, &b, &c, &d) == 0) return 0;
  const unsigned int base = signature >> 8 & 0xf, extended = signature >> 20 & 0xff;
  return base == 0xf ? base + extended : base;
}

bool HasAvx512Bf16() { return __builtin_cpu_supports("avx512bf16") != 0; }
#else
bool VendorIs(std::string_view) { return false; }
unsigned int FamilyNumber() { return 0; }
bool HasAvx512Bf16() { return false; }
#endif

CpuFamily HostFamily() {
  if (VendorIs("GenuineIntel")) return CpuFamily::kIntel;
  if (VendorIs("AuthenticAMD")) return FamilyNumber() >= 0x1a ? CpuFamily::kZen5 : CpuFamily::kAmd;
  return CpuFamily::kOther;
}

}  // namespace

std::optional<CpuFamily> CpuFamilyFromName(std::string_view name) {
  if (name.empty()) return HostFamily();
  if (name == "intel") return CpuFamily::kIntel;
  if (name == "amd") return CpuFamily::kAmd;
  if (name == "zen5") return CpuFamily::kZen5;
  if (name == "other") return CpuFamily::kOther;
  return std::nullopt;
}

// Measured with two cores (docs/performance.md):
//   Sapphire Rapids, whose prefetchers stop at page ends: 15 GB/s per core with one stream, 21 with
//   four.
//   Zen 5: decode is up to 1.18 times as fast with two streams as with Zen 4's setting; with three
//   it is up to a third slower. Keys and values: no setting is faster than Zen 4's.
//   Zen 4: weights 27 GB/s with one stream, 16 with four; decode is as fast with several distances.
//   Keys and values 21 GB/s with one stream, 11 with four, 24 to 28 when prefetched far ahead into
//   L2; with Q8_0 that takes 0.6 of the time without prefetching.
//   Zen 3: two streams decode up to 1.18 times as fast as one. Three reached 1.27 on a host with
//   24 GB/s, but were up to a quarter slower than two on a host with 32 GB/s. Distances: not
//   measured.
Processor MakeProcessor(CpuFamily family, int64_t target) {
  Processor processor = {.target = target,
                         .multiplies_bf16 = target == HWY_AVX3_DL && HasAvx512Bf16(),
                         .weights = {.streams = 1, .distance_bytes = 2048},
                         .kv_cache = {.streams = 1, .distance_bytes = 1024}};
  switch (family) {
    case CpuFamily::kIntel:
      processor.weights.streams = processor.kv_cache.streams = kStreams;
      break;
    case CpuFamily::kZen5:
      processor.weights = {.streams = 2, .distance_bytes = 4096};
      processor.kv_cache = {.streams = 1, .distance_bytes = 8192, .into_l2 = true};
      break;
    case CpuFamily::kAmd:
      if (target < HWY_AVX2) {  // 512-bit vectors: Zen 4
        processor.weights = {
            .streams = 1, .distance_bytes = 8192, .into_l2 = true, .l1_distance_bytes = 1024};
      } else {
        processor.weights = {.streams = 2, .distance_bytes = 2048};
      }
      processor.kv_cache = {.streams = 1, .distance_bytes = 8192, .into_l2 = true};
      break;
    case CpuFamily::kOther:
      break;
  }
  return processor;
}

}  // namespace winnow::kernels::cpu
