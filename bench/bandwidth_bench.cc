// How fast does this machine read memory? What bounds decoding: every token reads every weight
// once.
//
//   winnow_bandwidth_bench [THREADS [MEBIBYTES]]
//
// A table in GB/s (10^9 bytes), medians of 7: each thread reads a part of its own, as 1 to 8
// streams that take turns every 256 bytes, with lines fetched so many bytes ahead; in pages of 4
// KiB, as of a mapped file, and in pages of 2 MiB where the system gives them.
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "base/thread_pool.h"

namespace winnow {
namespace {

constexpr int64_t kHugePage = 2 << 20;
constexpr int64_t kTurn = 256;  // bytes

// Sums of words, which no compiler may leave out. Vectors: sums in an array of words would live in
// memory, whose latency is what some processors would then be measured by.
typedef uint64_t Words __attribute__((vector_size(64)));

uint64_t Read(const char* from, int64_t n_bytes, int n_streams, int64_t ahead) {
  const int64_t stream_bytes = n_bytes / n_streams / kTurn * kTurn;
  Words a = {}, b = {}, c = {}, d = {};
  const auto add = [](Words& sum, const char* at) {
    Words words;
    std::memcpy(&words, at, sizeof(words));
    sum ^= words;
  };
  for (int64_t i = 0; i < stream_bytes; i += kTurn) {
    for (int s = 0; s < n_streams; ++s) {
      const char* at = from + s * stream_bytes + i;
      if (ahead > 0) {
        for (int64_t line = 0; line < kTurn; line += 64) __builtin_prefetch(at + ahead + line);
      }
      add(a, at);
      add(b, at + 64);
      add(c, at + 128);
      add(d, at + 192);
    }
  }
  a ^= b ^ c ^ d;
  uint64_t all = 0;
  for (int i = 0; i < 8; ++i) all ^= a[i];
  return all;
}

double GigabytesPerSecond(ThreadPool& pool, const char* from, int64_t n_bytes, int n_streams,
                          int64_t ahead) {
  std::vector<uint64_t> results(static_cast<size_t>(pool.n_threads()));
  const int64_t part = n_bytes / pool.n_threads();
  std::vector<double> rates;
  for (int round = 0; round < 7; ++round) {
    const auto start = std::chrono::steady_clock::now();
    pool.ParallelFor(pool.n_threads(), [&](int64_t item, int) {
      results[static_cast<size_t>(item)] = Read(from + item * part, part, n_streams, ahead);
    });
    const std::chrono::duration<double> time = std::chrono::steady_clock::now() - start;
    rates.push_back(static_cast<double>(n_bytes) / 1e9 / time.count());
  }
  volatile uint64_t seen = results[0];
  (void)seen;
  std::nth_element(rates.begin(), rates.begin() + 3, rates.end());
  return rates[3];
}

int Main(int argc, char** argv) {
  const int n_threads = argc > 1 ? std::atoi(argv[1]) : ThreadPool::DefaultThreads();
  const int64_t n_bytes = (argc > 2 ? std::atoll(argv[2]) : 512) << 20;
  if (n_threads < 1 || n_threads > ThreadPool::kMaxThreads || n_bytes < kHugePage) {
    std::fprintf(stderr, "usage: winnow_bandwidth_bench [THREADS [MEBIBYTES]]\n");
    return 2;
  }
  ThreadPool pool(n_threads);
  std::printf("%d threads, %lld MiB; GB/s\n| pages | streams per thread | ahead 0 | 1024 | 2048 |",
              n_threads, static_cast<long long>(n_bytes >> 20));
  std::printf(" 4096 |\n|---|---|---|---|---|---|\n");
  for (const bool huge : {false, true}) {
    // Room for the last fetches ahead, and to begin at a large page.
    const int64_t mapped = n_bytes + 2 * kHugePage;
    void* memory = mmap(nullptr, static_cast<size_t>(mapped), PROT_READ | PROT_WRITE,
                        MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (memory == MAP_FAILED) {
      std::fprintf(stderr, "winnow_bandwidth_bench: no memory\n");
      return 1;
    }
    const auto address = reinterpret_cast<uintptr_t>(memory);
    char* from = static_cast<char*>(memory) + (kHugePage - address % kHugePage) % kHugePage;
    madvise(from, static_cast<size_t>(n_bytes), huge ? MADV_HUGEPAGE : MADV_NOHUGEPAGE);
    std::memset(from, 1, static_cast<size_t>(n_bytes));
    for (const int n_streams : {1, 2, 4, 8}) {
      std::printf("| %s | %d |", huge ? "2 MiB" : "4 KiB", n_streams);
      for (const int64_t ahead : {0, 1024, 2048, 4096}) {
        std::printf(" %.1f |", GigabytesPerSecond(pool, from, n_bytes, n_streams, ahead));
        std::fflush(stdout);
      }
      std::printf("\n");
    }
    munmap(memory, static_cast<size_t>(mapped));
  }
  return 0;
}

}  // namespace
}  // namespace winnow

int main(int argc, char** argv) { return winnow::Main(argc, argv); }
