#include "kernels/cpu/matmul.h"

#include <algorithm>

#include "kernels/cpu/matmul_input.h"
#include "kernels/cpu/matmul_rows.h"

namespace winnow::kernels::cpu {
namespace {

bool IsFloat(TensorType type) {
  return type == TensorType::kF32 || type == TensorType::kF16 || type == TensorType::kBF16;
}

// 64-byte aligned memory for `bytes` inside `buffer`, which grows if it must.
std::byte* Reserve(std::vector<std::byte>& buffer, int64_t bytes) {
  constexpr size_t kAlignment = 64;
  const size_t wanted = static_cast<size_t>(bytes) + kAlignment;
  if (buffer.size() < wanted) buffer.resize(wanted);
  const auto address = reinterpret_cast<uintptr_t>(buffer.data());
  return buffer.data() + ((kAlignment - address % kAlignment) % kAlignment);
}

int64_t RoundUp(int64_t n, int64_t multiple) { return (n + multiple - 1) / multiple * multiple; }

}  // namespace

void MatMul(const MatMulInput& input, std::span<const MatMulJob> jobs, int64_t target,
            MatMulScratch& scratch, ThreadPool& pool) {
  RoundedInput rounded;
  if (std::any_of(jobs.begin(), jobs.end(),
                  [](const MatMulJob& job) { return !IsFloat(job.type); })) {
    std::byte* memory = Reserve(scratch.input, RoundedBytes(input.rows, input.cols));
    rounded = RoundInput(input.x, input.rows, input.cols, input.stride, target, memory, pool);
  }
  int64_t n_rows = 0;
  for (const MatMulJob& job : jobs) n_rows += job.rows;
  // Runs of rows: several per thread, so that a late thread costs little; in fours, so that the
  // rows that are computed together do not depend on the number of threads.
  constexpr int kRunsPerThread = 8;
  const int64_t run =
      RoundUp(std::max<int64_t>(1, n_rows / (pool.n_threads() * kRunsPerThread)), 4);
  int64_t n_runs = 0;
  for (const MatMulJob& job : jobs) n_runs += RoundUp(job.rows, run) / run;
  const RowProducts products = RowProductsFor(target);
  pool.ParallelFor(n_runs, [&](int64_t item, int) {
    for (const MatMulJob& job : jobs) {
      const int64_t n = RoundUp(job.rows, run) / run;
      if (item >= n) {
        item -= n;
        continue;
      }
      const int64_t first = item * run;
      const int64_t count = std::min(run, job.rows - first);
      if (IsFloat(job.type)) {
        products.floats(job, first, count, input);
      } else {
        products.rounded(job, first, count, rounded);
      }
      return;
    }
  });
}

}  // namespace winnow::kernels::cpu
