#include "kernels/cpu/matmul.h"

#include <vector>

namespace winnow::kernels::cpu {

void MatMul(const MatMulInput& in, std::span<const MatMulJob> jobs, int64_t, MatMulScratch&,
            ThreadPool& pool) {
  for (const MatMulJob& job : jobs) {
    const int64_t row_bytes = gguf::RowBytes(job.type, in.cols);
    pool.ParallelFor(
        job.rows,
        [&](int64_t r, int) {
          std::vector<float> w(static_cast<size_t>(in.cols));
          Dequantize(job.type, {job.weight + r * row_bytes, static_cast<size_t>(row_bytes)}, w);
          for (int64_t i = 0; i < in.rows; ++i) {
            float sums[16] = {};
            const float* x = in.x + i * in.stride;
            for (int64_t k = 0; k + 16 <= in.cols; k += 16) {
              for (int64_t j = 0; j < 16; ++j) sums[j] += w[static_cast<size_t>(k + j)] * x[k + j];
            }
            for (int64_t k = in.cols / 16 * 16; k < in.cols; ++k)
              sums[0] += w[static_cast<size_t>(k)] * x[k];
            float sum = job.bias != nullptr ? job.bias[r] : 0.0f;
            for (float s : sums) sum += s;
            float& out = job.out[i * job.out_stride + r];
            out = job.accumulate ? out + sum : sum;
          }
        },
        16);
  }
}

}  // namespace winnow::kernels::cpu
