#define WINNOW_FLOAT_KERNELS  // see simd/targets.h
#include "kernels/cpu/similarity/mean_cosines.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/check.h"
#include "kernels/cpu/processor.h"
#include "kernels/cpu/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/similarity/mean_cosines.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/simd/cache_rows-inl.h"
#include "kernels/cpu/simd/lane_sums-inl.h"

#ifndef WINNOW_KERNELS_CPU_MEAN_COSINES_ONCE_
#define WINNOW_KERNELS_CPU_MEAN_COSINES_ONCE_
namespace winnow::kernels::cpu {

// Floats of a row with room for the widest vector behind them.
constexpr int PaddedDim(int dim) { return (dim + 15) / 16 * 16; }

// Rows that are taken together: floats add up few at a time, so that sums of many keep their
// digits.
constexpr size_t kRowsAtOnce = 32;

// Sums of squares outside these bounds lose digits in floats.
constexpr float kSmallSquare = 1e-20F, kLargeSquare = 1e30F;
constexpr bool IsExtremeSquare(float square) {
  return !(square >= kSmallSquare && square <= kLargeSquare);
}

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
  // Both take the first kRowsAtOnce rows and prefetch the next; `inverse` and `dots` have room for
  // as many.
  // Adds the unit vectors of `rows` to sum [dim] and writes 1 / length of each; `floats`: working
  // memory, two rows of PaddedDim(dim).
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

// Elements [k, k + kLanes) of a row of any dimension; zeros follow the last one.
template <class Elements>
struct TailedAt {
  const std::byte* row;
  int dim;
  HWY_INLINE VF operator()(int k) const {
    const std::byte* from = row + k * Elements::kBytes;
    if (k + kLanes <= dim) return Elements::Load(from);
    return k < dim ? LoadFirst<Elements>(from, dim - k) : hn::Zero(DF());
  }
};
// The same of a row of whole vectors.
template <class Elements>
struct WholeAt {
  const std::byte* row;
  int dim;
  HWY_INLINE VF operator()(int k) const { return Elements::Load(row + k * Elements::kBytes); }
};
template <class Block>
struct BlockAt {
  const std::byte* row;
  int dim;
  HWY_INLINE VF operator()(int k) const {
    if (k >= dim) return hn::Zero(DF());
    const std::byte* block = row + k / 32 * Block::kBytes;
    return hn::Mul(Block::Load(block, k % 32 / kLanes), LoadScale(block));
  }
};

// Rows may lie anywhere: no prefetcher sees the next one.
constexpr size_t kRowsAhead = 8;

// out[i] = the sum of factor(k, x) * x over the vectors x of row i, for the first n rows, and for
// some more up to whole vectors of `out`.
template <class At, class Factor>
HWY_INLINE void SumRows(const HostHeadRows& head, std::span<const int32_t> rows, size_t n,
                        const Factor& factor, float* out) {
  const DF df;
  constexpr PrefetchPolicy listed;  // row by row
  const size_t last = rows.size() - 1;
  for (size_t first = 0; first < n; first += kLanes) {
    VF fours[kLanes / 4];
#pragma GCC unroll 4
    for (size_t four = 0; four < kLanes / 4; ++four) {
      VF sums[4];
#pragma GCC unroll 4
      for (size_t i = 0; i < 4; ++i) {
        const size_t row = first + 4 * four + i;
        listed.Fetch(head.Row(rows[std::min(row + kRowsAhead, last)]), head.row_bytes);
        const At at{head.Row(rows[std::min(row, last)]), head.dim};
        sums[i] = hn::Zero(df);
        for (int k = 0; k < head.dim; k += kLanes) {
          const VF x = at(k);
          sums[i] = hn::MulAdd(x, factor(k, x), sums[i]);
        }
      }
      fours[four] = SumFour(sums[0], sums[1], sums[2], sums[3]);
    }
    hn::StoreU(SumBlocks(fours), df, out + first);
  }
}

// Adds rows times their factors to kVectors vectors of the sum, from element k on. They stay in
// registers meanwhile.
template <class At, int kVectors>
HWY_INLINE void AddScaled(const HostHeadRows& head, std::span<const int32_t> rows,
                          const float* factors, int k, float* sum) {
  const DF df;
  VF sums[kVectors];
#pragma GCC unroll 4
  for (int v = 0; v < kVectors; ++v) sums[v] = hn::LoadU(df, sum + k + v * kLanes);
  for (size_t i = 0; i < rows.size(); ++i) {
    const VF factor = hn::Set(df, factors[i]);
    const At at{head.Row(rows[i]), head.dim};
#pragma GCC unroll 4
    for (int v = 0; v < kVectors; ++v) sums[v] = hn::MulAdd(at(k + v * kLanes), factor, sums[v]);
  }
#pragma GCC unroll 4
  for (int v = 0; v < kVectors; ++v) hn::StoreU(sums[v], df, sum + k + v * kLanes);
}

template <class At>
void AddScaledRows(const HostHeadRows& head, std::span<const int32_t> rows, const float* factors,
                   float* sum) {
  int k = 0;
  for (; k + 4 * kLanes <= PaddedDim(head.dim); k += 4 * kLanes) {
    AddScaled<At, 4>(head, rows, factors, k, sum);
  }
  for (; k < PaddedDim(head.dim); k += kLanes) AddScaled<At, 1>(head, rows, factors, k, sum);
}

template <class At>
void AddUnits(const HostHeadRows& head, std::span<const int32_t> all_rows, double* sum,
              float* inverse, float* floats) {
  const DF df;
  const auto rows = all_rows.first(std::min(kRowsAtOnce, all_rows.size()));
  const int dim = head.dim;
  float* const part = floats + PaddedDim(dim);
  // Lengths first, then the sum: no row waits for another one's square root.
  alignas(64) float squares[kRowsAtOnce];
  SumRows<At>(
      head, all_rows, rows.size(), [](int, VF x) HWY_ATTR { return x; }, squares);
  bool extreme = false;
  for (size_t i = 0; i < rows.size(); ++i) extreme |= IsExtremeSquare(squares[i]);
  for (size_t i = 0; i < rows.size(); i += kLanes) {
    const VF square = hn::Load(df, squares + i);
    hn::StoreU(hn::Div(hn::Set(df, 1.0F), hn::Sqrt(square)), df, inverse + i);
  }
  std::fill_n(part, PaddedDim(dim), 0.0F);
  if (!extreme) {
    AddScaledRows<At>(head, rows, inverse, part);
  } else {
    for (size_t i = 0; i < rows.size(); ++i) {
      if (!IsExtremeSquare(squares[i])) {
        AddScaledRows<At>(head, rows.subspan(i, 1), inverse + i, part);
        continue;
      }
      const At at{head.Row(rows[i]), dim};
      for (int k = 0; k < dim; k += kLanes) hn::StoreU(at(k), df, floats + k);
      inverse[i] = AddExtremeUnit(floats, dim, part);
    }
  }
  for (int k = 0; k < dim; ++k) sum[k] += part[k];
}

template <class At>
void Dots(const HostHeadRows& head, std::span<const int32_t> rows, const float* direction,
          float* dots) {
  const DF df;
  SumRows<At>(
      head, rows, std::min(kRowsAtOnce, rows.size()),
      [&](int k, VF) HWY_ATTR { return hn::LoadU(df, direction + k); }, dots);
}

template <class At>
constexpr MeanKernels kMeanKernels = {.add_units = AddUnits<At>, .dots = Dots<At>};

template <class Elements>
const MeanKernels& ElementKernels(bool whole) {
  return whole ? kMeanKernels<WholeAt<Elements>> : kMeanKernels<TailedAt<Elements>>;
}

const MeanKernels& MeanTable(TensorType type, int dim) {
  const bool whole = dim == PaddedDim(dim);
  switch (type) {
    case TensorType::kF32:
      return ElementKernels<F32Elements>(whole);
    case TensorType::kF16:
      return ElementKernels<F16Elements>(whole);
    case TensorType::kBF16:
      return ElementKernels<Bf16Elements>(whole);
    case TensorType::kQ8_0:
      return kMeanKernels<BlockAt<Q8Block>>;
    default:
      WINNOW_CHECK(type == TensorType::kQ4_0);
      return kMeanKernels<BlockAt<Q4Block>>;
  }
}

}  // namespace winnow::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace winnow::kernels::cpu {
namespace {

HWY_EXPORT(MeanTable);

// Of length 1; false: the mean is zero.
bool MeanDirection(std::span<const double> sum, std::span<float> direction) {
  double square = 0;
  for (const double x : sum) square += x * x;
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
                     std::span<double> cosines, int64_t target) {
  WINNOW_CHECK(cosines.size() == rows.size());
  for (const int32_t row : rows) WINNOW_CHECK(row >= 0 && row < head.n_rows);
  const MeanKernels& kernels =
      ForTarget(HWY_DISPATCH_TABLE(MeanTable), target)(head.type, head.dim);
  const auto padded = static_cast<size_t>(PaddedDim(head.dim));
  // Heads of usual dimensions need no memory of the heap.
  constexpr size_t kDim = 256;
  double few_sums[kDim] = {};
  float few_floats[3 * kDim] = {};
  std::vector<double> many_sums(padded > kDim ? padded : 0);
  std::vector<float> many_floats(padded > kDim ? 3 * padded : 0);
  double* const sums = padded > kDim ? many_sums.data() : few_sums;
  float* const floats = padded > kDim ? many_floats.data() : few_floats;
  const std::span<float> direction(floats + 2 * padded, padded);

  const auto each_part = [&](const auto& use) {
    for (size_t first = 0; first < rows.size(); first += kRowsAtOnce) {
      const size_t n = std::min(kRowsAtOnce, rows.size() - first);
      use(rows.subspan(first), cosines.subspan(first, n));
    }
  };
  float inverse[kRowsAtOnce], dots[kRowsAtOnce];
  // What a row is multiplied with waits where its cosine will be.
  each_part([&](std::span<const int32_t> part, std::span<double> out) {
    kernels.add_units(head, part, sums, inverse, floats);
    std::copy_n(inverse, out.size(), out.begin());
  });
  if (!MeanDirection({sums, static_cast<size_t>(head.dim)}, direction)) {
    std::fill(cosines.begin(), cosines.end(), 0.0);
    return;
  }
  each_part([&](std::span<const int32_t> part, std::span<double> out) {
    kernels.dots(head, part, direction.data(), dots);
    for (size_t i = 0; i < out.size(); ++i) {
      const bool extreme = IsExtreme(static_cast<float>(out[i]));
      out[i] = extreme ? ExtremeCosine(head, part[i], direction) : double{dots[i]} * out[i];
    }
  });
}

}  // namespace winnow::kernels::cpu
#endif
