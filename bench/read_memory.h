#pragma once

#include <cstdint>
#include <cstring>

// Plain memory reads, the baseline for other measurements.
namespace winnow::bench {

struct Fetch {
  int64_t distance_bytes = 0;  // 0: no software prefetch
  bool into_l2 = false;
};

inline constexpr int64_t kInterleaveBytes =
    256;  // bytes read from a stream before the next stream's turn

// Reads n_bytes as n_streams interleaved streams of equal size; skips the remainder of a stream
// below kInterleaveBytes bytes. The result keeps the compiler from removing the reads.
inline uint64_t ReadMemory(const void* memory, int64_t n_bytes, int n_streams = 1,
                           const Fetch& fetch = {}) {
  // Sums that stay in registers, even with SSE only. An array of words would live in memory, and
  // its latency would be measured instead.
  typedef uint64_t Words __attribute__((vector_size(64)));
  Words a = {}, b = {};
  const auto add = [](Words& sum, const char* at) {
    Words words;
    std::memcpy(&words, at, sizeof(words));
    sum ^= words;
  };
  const auto* from = static_cast<const char*>(memory);
  const int64_t stream_bytes = n_bytes / n_streams / kInterleaveBytes * kInterleaveBytes;
  for (int64_t i = 0; i < stream_bytes; i += kInterleaveBytes) {
    for (int s = 0; s < n_streams; ++s) {
      const char* at = from + s * stream_bytes + i;
      for (int64_t line = 0; fetch.distance_bytes > 0 && line < kInterleaveBytes; line += 64) {
        if (fetch.into_l2) {
          __builtin_prefetch(at + fetch.distance_bytes + line, 0, 2);
        } else {
          __builtin_prefetch(at + fetch.distance_bytes + line, 0, 3);
        }
      }
      add(a, at);
      add(b, at + 64);
      add(a, at + 128);
      add(b, at + 192);
    }
  }
  a ^= b;
  uint64_t all = 0;
  for (int i = 0; i < 8; ++i) all ^= a[i];
  return all;
}

}  // namespace winnow::bench
