// How fast does this machine read memory? This limits decoding: every token reads every weight
// once.
//
//   winnow_bandwidth_bench [THREADS [MEBIBYTES]]
//
// Prints a table in GB/s (10^9 bytes), medians of 7. Each thread reads its own part, as 1 to 8
// streams interleaved every 256 bytes. The columns are prefetch distances in bytes, into L1 or L2.
// The pages have 4 KiB, like those of a mapped file, or 2 MiB if the system provides them.
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "base/thread_pool.h"
#include "read_memory.h"

namespace winnow {
namespace {

constexpr int64_t kHugePage = 2 << 20;
double GigabytesPerSecond(ThreadPool& pool, const char* from, int64_t n_bytes, int n_streams,
                          const bench::Fetch& fetch) {
  std::vector<uint64_t> results(static_cast<size_t>(pool.n_threads()));
  const int64_t part = n_bytes / pool.n_threads();
  std::vector<double> rates;
  for (int round = 0; round < 7; ++round) {
    const auto start = std::chrono::steady_clock::now();
    pool.ParallelFor(pool.n_threads(), [&](int64_t item, int) {
      results[static_cast<size_t>(item)] =
          bench::ReadMemory(from + item * part, part, n_streams, fetch);
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
  constexpr bench::Fetch kFetches[] = {{},           {1024},       {2048},       {4096},
                                       {4096, true}, {8192, true}, {16384, true}};
  std::printf("%d threads, %lld MiB; GB/s\n| pages | streams per thread | ahead 0 |", n_threads,
              static_cast<long long>(n_bytes >> 20));
  std::printf(" 1024 | 2048 | 4096 | 4096, L2 | 8192 | 16384 |\n");
  std::printf("|---|---|---|---|---|---|---|---|---|\n");
  for (const bool huge : {false, true}) {
    // Extra bytes for the last prefetches, and to start at a huge page.
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
      for (const bench::Fetch& fetch : kFetches) {
        std::printf(" %.1f |", GigabytesPerSecond(pool, from, n_bytes, n_streams, fetch));
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
