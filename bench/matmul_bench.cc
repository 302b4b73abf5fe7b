// How fast are matrix products? One line per case: time; bytes of weights read per second, which
// limits few tokens, also as a share of plain reads on this machine; and operations per second,
// which limit many tokens.
//
//   winnow_matmul_bench [TYPE ROWS COLS TOKENS THREADS [TARGET]]
//
// With few tokens, the products cycle through copies of the weights that together exceed the
// caches, as the layers of a model do. Without arguments: a table over types and numbers of tokens,
// one thread.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#include "base/rng.h"
#include "kernels/backends.h"
#include "kernels/ops.h"
#include "kernels/testing/random_blocks.h"
#include "read_memory.h"

namespace winnow {
namespace {

using gguf::TensorType;

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Shortest time of a call; repeats it for at least `seconds`.
template <typename F>
double Fastest(double seconds, const F& call) {
  double best = 1e9;
  for (double start = Now(); Now() - start < seconds;) {
    const double before = Now();
    call();
    best = std::min(best, Now() - before);
  }
  return best;
}

// Bytes per second that `pool` reads from `memory`, which exceeds the caches.
double ReadBandwidth(ThreadPool& pool, const std::vector<std::byte>& memory) {
  constexpr int64_t kRun = 1 << 20;
  const auto n_runs = static_cast<int64_t>(memory.size()) / kRun;
  std::vector<uint64_t> sums(static_cast<size_t>(n_runs));
  const double seconds = Fastest(0.5, [&] {
    pool.ParallelFor(n_runs, [&](int64_t run, int) {
      sums[static_cast<size_t>(run)] = bench::ReadMemory(memory.data() + run * kRun, kRun);
    });
  });
  return static_cast<double>(n_runs * kRun) / seconds;
}

// Copies of one random weight, at least `min_bytes` in total.
std::vector<std::byte> Copies(TensorType type, int64_t n_elements, size_t min_bytes) {
  Rng rng(1);
  const std::vector<std::byte> one = kernels::testing::RandomBlocks(type, n_elements, rng);
  const size_t n_copies = (min_bytes + one.size() - 1) / one.size();
  std::vector<std::byte> all(n_copies * one.size());
  for (size_t i = 0; i < all.size(); i += one.size())
    std::memcpy(all.data() + i, one.data(), one.size());
  return all;
}

struct Case {
  TensorType type;
  int64_t rows, cols, tokens;
};

void Run(const Case& c, ThreadPool& pool, const std::string& target, double bandwidth) {
  kernels::CpuOptions options = {.pool = &pool, .target = target};
  auto made = kernels::MakeCpuBackend(options);
  if (!made) {
    std::fprintf(stderr, "%s\n", made.error().message.c_str());
    std::exit(1);
  }
  kernels::Backend& backend = **made;
  const auto bytes = static_cast<size_t>(gguf::RowBytes(c.type, c.rows * c.cols));
  // Products of few tokens are memory-bound, so their weights must come from memory.
  const std::vector<std::byte> weights =
      Copies(c.type, c.rows * c.cols, c.tokens <= 8 ? size_t{600} << 20 : bytes);
  std::vector<std::unique_ptr<kernels::Weight>> copies;
  for (size_t offset = 0; offset < weights.size(); offset += bytes) {
    copies.push_back(std::move(backend
                                   .LoadWeight({.name = "w",
                                                .type = c.type,
                                                .rows = c.rows,
                                                .cols = c.cols,
                                                .bytes = std::span(weights).subspan(offset, bytes),
                                                .keep_alive = nullptr})
                                   .value()));
  }
  const auto matrix = [&](int64_t cols, std::unique_ptr<kernels::Storage>& storage) {
    storage =
        std::move(backend.Allocate(c.tokens * cols * static_cast<int64_t>(sizeof(float))).value());
    return kernels::Matrix{storage.get(), 0, c.tokens, cols, cols};
  };
  std::unique_ptr<kernels::Storage> x_storage, out_storage;
  const kernels::Matrix x = matrix(c.cols, x_storage), out = matrix(c.rows, out_storage);
  Rng rng(2);
  std::vector<float> values(static_cast<size_t>(c.tokens * c.cols));
  for (float& value : values) value = static_cast<float>(rng.Uniform()) - 0.5f;
  backend.Write(x, values);
  // Best mean over all copies, rather than the best copy, which may be in the cache.
  double best = 1e9;
  for (double start = Now(); Now() - start < 1.0;) {
    const double before = Now();
    for (const auto& weight : copies) {
      const kernels::Linear job = {.weight = weight.get(), .bias = {}, .out = out};
      backend.MatMul(x, {&job, 1});
    }
    best = std::min(best, (Now() - before) / static_cast<double>(copies.size()));
  }
  const double operations = 2.0 * static_cast<double>(c.rows) * static_cast<double>(c.cols) *
                            static_cast<double>(c.tokens);
  const double bytes_per_second = static_cast<double>(bytes) / best;
  std::printf(
      "%-7s %-7s %6ld x %-5ld %4ld tokens %2d threads %10.1f us %7.2f GB/s (%3.0f %%) %8.1f "
      "GFLOP/s\n",
      std::string(gguf::GetTypeInfo(c.type).name).c_str(), std::string(backend.target()).c_str(),
      static_cast<long>(c.rows), static_cast<long>(c.cols), static_cast<long>(c.tokens),
      pool.n_threads(), best * 1e6, bytes_per_second / 1e9, 100 * bytes_per_second / bandwidth,
      operations / best / 1e9);
}

int Main(int argc, char** argv) {
  const bool one = argc == 6 || argc == 7;
  const auto type = one ? gguf::TensorTypeFromName(argv[1]) : TensorType::kF32;
  if ((argc != 1 && !one) || !type) {
    std::fprintf(stderr, "usage: %s [TYPE ROWS COLS TOKENS THREADS [TARGET]]\n", argv[0]);
    return 2;
  }
  const Case asked =
      one ? Case{*type, std::atoll(argv[2]), std::atoll(argv[3]), std::atoll(argv[4])} : Case{};
  const int n_threads = one ? std::atoi(argv[5]) : 1;
  if (one) {
    const int64_t block = gguf::GetTypeInfo(*type).block_elements;
    if (asked.rows < 1 || asked.cols < 1 || asked.tokens < 1 || n_threads < 1 ||
        n_threads > ThreadPool::kMaxThreads) {
      std::fprintf(stderr,
                   "ROWS, COLS, TOKENS, THREADS: found %s %s %s %s, expected positive numbers, at "
                   "most %d threads\n",
                   argv[2], argv[3], argv[4], argv[5], ThreadPool::kMaxThreads);
      return 2;
    }
    if (asked.cols % block != 0) {
      std::fprintf(stderr, "COLS: found %s, expected a multiple of %lld, the block of %s\n",
                   argv[3], static_cast<long long>(block), argv[1]);
      return 2;
    }
  }
  ThreadPool pool(n_threads);
  const double bandwidth =
      ReadBandwidth(pool, std::vector<std::byte>(size_t{600} << 20, std::byte{1}));
  std::printf("memory: %.2f GB/s with %d threads\n", bandwidth / 1e9, pool.n_threads());
  if (one) {
    Run(asked, pool, argc == 7 ? argv[6] : "", bandwidth);
    return 0;
  }
  for (const int64_t tokens : {1, 4, 512}) {
    for (const TensorType each : kernels::testing::kAllTypes)
      Run({each, 2048, 2048, tokens}, pool, "", bandwidth);
  }
  return 0;
}

}  // namespace
}  // namespace winnow

int main(int argc, char** argv) { return winnow::Main(argc, argv); }
