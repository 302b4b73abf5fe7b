#include "kernels/cpu/similarity/mean_cosines.h"

#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "kernels/cpu/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/similarity/mean_cosines.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/simd/cache_rows-inl.h"

#ifndef WINNOW_KERNELS_CPU_MEAN_COSINES_ONCE_
#define WINNOW_KERNELS_CPU_MEAN_COSINES_ONCE_
namespace winnow::kernels::cpu {

// Floats of a row with room for the widest vector behind them.
constexpr int PaddedDim(int dim) { return (dim + 15) / 16 * 16; }

// Sums of squares outside these bounds lose digits in floats.
constexpr float kSmallSquare = 1e-20F, kLargeSquare = 1e30F;

inline double ExactLength(const float* row, int dim) {
  double square = 0;
  for (int k = 0; k < dim; ++k) square += static_cast<double>(row[k]) * row[k];
  return std::sqrt(square);
}

// Adds the unit vector of such a row to `part`, and returns 1 / length.
inline float AddExtremeUnit(const float* row, int dim, float* part) {
  const double length = ExactLength(row, dim);
  if (length == 0) return 0;
  for (int k = 0; k < dim; ++k) part[k] += static_cast<float>(row[k] / length);
  return static_cast<float>(1 / length);
}

struct MeanKernels {
  // Adds the unit vectors of `rows` to sum [dim] and writes 1 / length of each; `floats` has two
  // rows of PaddedDim(dim).
  void (*add_units)(const HostHeadRows& head, std::span<const int32_t> rows, double* sum,
                    float* inverse, float* floats);
  // dots[i] = row i times `direction` [PaddedDim(dim), zeros at the end].
  void (*dots)(const HostHeadRows& head, std::span<const int32_t> rows, const float* direction,
               float* dots);
};

}  // namespace winnow::kernels::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace winnow::kernels::cpu::HWY_NAMESPACE {

// Calls use(k, vector) for the elements [k, k + kLanes) of a row; zeros follow the last one.
template <class Elements>
struct PlainRow {
  template <class Use>
  static HWY_INLINE void ForEach(const std::byte* row, int dim, const Use& use) {
    int k = 0;
    for (; k + kLanes <= dim; k += kLanes) use(k, Elements::Load(row + k * Elements::kBytes));
    if (k < dim) use(k, LoadFirst<Elements>(row + k * Elements::kBytes, dim - k));
  }
};

template <class Block>
struct BlockRow {
  template <class Use>
  static HWY_INLINE void ForEach(const std::byte* row, int dim, const Use& use) {
    for (int first = 0; first < dim; first += 32, row += Block::kBytes) {
      const VF scale = LoadScale(row);
      for (int part = 0; part < 32 / kLanes; ++part) {
        use(first + part * kLanes, hn::Mul(scale, Block::Load(row, part)));
      }
    }
  }
};

template <class Row>
void AddUnits(const HostHeadRows& head, std::span<const int32_t> rows, double* sum, float* inverse,
              float* floats) {
  const DF df;
  const int dim = head.dim, padded = PaddedDim(dim);
  float* const row = floats;
  float* const part = floats + padded;
  // Floats add up few rows at a time, so that sums of many keep their digits.
  constexpr size_t kRowsAtOnce = 32;
  for (size_t first = 0; first < rows.size(); first += kRowsAtOnce) {
    std::fill_n(part, padded, 0.0F);
    const size_t end = std::min(rows.size(), first + kRowsAtOnce);
    for (size_t i = first; i < end; ++i) {
      VF square = hn::Zero(df);
      Row::ForEach(head.Row(rows[i]), dim, [&](int k, VF x) HWY_ATTR {
        hn::StoreU(x, df, row + k);
        square = hn::MulAdd(x, x, square);
      });
      const float sum_of_squares = hn::GetLane(hn::SumOfLanes(df, square));
      if (!(sum_of_squares >= kSmallSquare && sum_of_squares <= kLargeSquare)) {
        inverse[i] = AddExtremeUnit(row, dim, part);
        continue;
      }
      inverse[i] = 1 / std::sqrt(sum_of_squares);
      const VF factor = hn::Set(df, inverse[i]);
      for (int k = 0; k < dim; k += kLanes) {
        const VF x = hn::LoadU(df, row + k);
        hn::StoreU(hn::MulAdd(x, factor, hn::LoadU(df, part + k)), df, part + k);
      }
    }
    for (int k = 0; k < dim; ++k) sum[k] += part[k];
  }
}

template <class Row>
void Dots(const HostHeadRows& head, std::span<const int32_t> rows, const float* direction,
          float* dots) {
  const DF df;
  for (size_t i = 0; i < rows.size(); ++i) {
    VF dot = hn::Zero(df);
    Row::ForEach(head.Row(rows[i]), head.dim, [&](int k, VF x) HWY_ATTR {
      dot = hn::MulAdd(x, hn::LoadU(df, direction + k), dot);
    });
    dots[i] = hn::GetLane(hn::SumOfLanes(df, dot));
  }
}

template <class Row>
const MeanKernels& SummaryTable() {
  static constexpr MeanKernels kTable = {.add_units = AddUnits<Row>, .dots = Dots<Row>};
  return kTable;
}

const MeanKernels& MeanTable(TensorType type) {
  switch (type) {
    case TensorType::kF32:
      return SummaryTable<PlainRow<F32Elements>>();
    case TensorType::kF16:
      return SummaryTable<PlainRow<F16Elements>>();
    case TensorType::kBF16:
      return SummaryTable<PlainRow<Bf16Elements>>();
    case TensorType::kQ8_0:
      return SummaryTable<BlockRow<Q8Block>>();
    default:
      WINNOW_CHECK(type == TensorType::kQ4_0);
      return SummaryTable<BlockRow<Q4Block>>();
  }
}

}  // namespace winnow::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace winnow::kernels::cpu {
namespace {

HWY_EXPORT(MeanTable);

// Rows that are one job: the caches of most steps are one, and wait for no thread.
constexpr int64_t kPartRows = 1024;

// Of length 1, as floats; false: the mean is zero.
bool MeanDirection(std::span<const double> sum, std::vector<float>& direction) {
  double square = 0;
  for (const double x : sum) square += x * x;
  direction.assign(static_cast<size_t>(PaddedDim(static_cast<int>(sum.size()))), 0.0F);
  if (square == 0) return false;
  const double length = std::sqrt(square);
  for (size_t k = 0; k < sum.size(); ++k) direction[k] = static_cast<float>(sum[k] / length);
  return true;
}

// Of rows whose sum of squares is outside the bounds.
bool IsExtreme(float inverse) {
  return inverse != 0 && !(inverse >= 1 / std::sqrt(kLargeSquare) * 1.01F &&
                           inverse <= 1 / std::sqrt(kSmallSquare) * 0.99F);
}

double ExtremeCosine(const HostHeadRows& head, int32_t row, std::span<const float> direction) {
  std::vector<float> floats(static_cast<size_t>(head.dim));
  Dequantize(head.type, {head.Row(row), static_cast<size_t>(head.row_bytes)}, floats);
  double dot = 0;
  for (size_t k = 0; k < floats.size(); ++k) dot += static_cast<double>(floats[k]) * direction[k];
  return dot / ExactLength(floats.data(), head.dim);
}

}  // namespace

void CompareWithMean(const HostHeadRows& head, std::span<const int32_t> rows,
                     std::span<double> cosines, int64_t target, MeanScratch& scratch,
                     ThreadPool& pool) {
  WINNOW_CHECK(cosines.size() == rows.size());
  for (const int32_t row : rows) WINNOW_CHECK(row >= 0 && row < head.n_rows);
  const auto n_rows = static_cast<int64_t>(rows.size());
  const int64_t n_parts = (n_rows + kPartRows - 1) / kPartRows;
  const auto dim = static_cast<size_t>(head.dim);
  const auto room = static_cast<size_t>(2 * PaddedDim(head.dim));
  const MeanKernels& kernels = ForTarget(HWY_DISPATCH_TABLE(MeanTable), target)(head.type);
  const auto begin = [](int64_t part) { return static_cast<size_t>(part * kPartRows); };
  const auto part_of = [&](int64_t part) {
    return rows.subspan(begin(part), std::min(rows.size() - begin(part), begin(1)));
  };

  scratch.sums.assign(static_cast<size_t>(n_parts) * dim, 0.0);
  scratch.inverse.resize(rows.size());
  scratch.floats.resize(room * static_cast<size_t>(pool.n_threads()));
  pool.ParallelFor(n_parts, [&](int64_t part, int thread) {
    kernels.add_units(head, part_of(part), &scratch.sums[static_cast<size_t>(part) * dim],
                      &scratch.inverse[begin(part)],
                      &scratch.floats[room * static_cast<size_t>(thread)]);
  });
  for (size_t part = 1; part < static_cast<size_t>(n_parts); ++part) {
    for (size_t k = 0; k < dim; ++k) scratch.sums[k] += scratch.sums[part * dim + k];
  }
  const std::span<const double> sum = std::span(scratch.sums).first(n_parts > 0 ? dim : 0);
  if (!MeanDirection(sum, scratch.direction)) {
    std::fill(cosines.begin(), cosines.end(), 0.0);
    return;
  }
  // As many dots at a time as the working memory of a thread holds.
  pool.ParallelFor(n_parts, [&](int64_t part, int thread) {
    float* const dots = &scratch.floats[room * static_cast<size_t>(thread)];
    const std::span<const int32_t> own = part_of(part);
    const size_t n_at_once = room;
    for (size_t first = 0; first < own.size(); first += n_at_once) {
      const size_t n = std::min(n_at_once, own.size() - first);
      kernels.dots(head, own.subspan(first, n), scratch.direction.data(), dots);
      for (size_t i = 0; i < n; ++i) {
        const size_t row = begin(part) + first + i;
        const float inverse = scratch.inverse[row];
        cosines[row] = static_cast<double>(dots[i]) * inverse;
        if (IsExtreme(inverse))
          cosines[row] = ExtremeCosine(head, own[first + i], scratch.direction);
      }
    }
  });
}

}  // namespace winnow::kernels::cpu
#endif
