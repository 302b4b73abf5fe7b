#include "kernels/cpu/head_rows.h"

#include <algorithm>

#include "base/check.h"

namespace winnow::kernels::cpu {
namespace {

std::span<std::byte> Bytes(const HostHeadRows& head, int32_t row) {
  WINNOW_CHECK(row >= 0 && row < head.n_rows);
  return {head.data + row * head.row_bytes, static_cast<size_t>(head.row_bytes)};
}

}  // namespace

void ReadRows(const HostHeadRows& head, std::span<const int32_t> rows, std::span<float> out,
              ThreadPool& pool) {
  const auto dim = static_cast<size_t>(head.dim);
  WINNOW_CHECK(out.size() == rows.size() * dim);
  pool.ParallelFor(
      static_cast<int64_t>(rows.size()),
      [&](int64_t i, int) {
        const auto at = static_cast<size_t>(i);
        Dequantize(head.type, Bytes(head, rows[at]), out.subspan(at * dim, dim));
      },
      64);
}

void SumRows(const HostHeadRows& head, std::span<const RowSum> sums, std::vector<float>& scratch,
             ThreadPool& pool) {
  const auto dim = static_cast<size_t>(head.dim);
  // Results, followed by a row per thread.
  const size_t n_results = sums.size() * dim;
  scratch.resize(std::max(scratch.size(), n_results + dim * static_cast<size_t>(pool.n_threads())));
  pool.ParallelFor(
      static_cast<int64_t>(sums.size()),
      [&](int64_t i, int thread) {
        const RowSum& sum = sums[static_cast<size_t>(i)];
        WINNOW_CHECK(sum.rows.size() == sum.weights.size());
        const std::span<float> total =
            std::span(scratch).subspan(static_cast<size_t>(i) * dim, dim);
        const std::span<float> row =
            std::span(scratch).subspan(n_results + static_cast<size_t>(thread) * dim, dim);
        std::fill(total.begin(), total.end(), 0.0f);
        for (size_t j = 0; j < sum.rows.size(); ++j) {
          Dequantize(head.type, Bytes(head, sum.rows[j]), row);
          for (size_t k = 0; k < dim; ++k) total[k] += sum.weights[j] * row[k];
        }
      },
      16);
  for (size_t i = 0; i < sums.size(); ++i) {
    Quantize(head.type, std::span(scratch).subspan(i * dim, dim), Bytes(head, sums[i].into));
  }
}

}  // namespace winnow::kernels::cpu
