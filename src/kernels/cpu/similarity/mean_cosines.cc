#define WINNOW_FLOAT_KERNELS  // see simd/targets.h
#include "kernels/cpu/similarity/mean_cosines.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <vector>

#include "base/check.h"
#include "kernels/cpu/processor.h"
#include "kernels/cpu/simd/targets.h"
#include "kernels/cpu/similarity/similarity_kernels.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/similarity/mean_cosines.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/simd/cache_rows-inl.h"
#include "kernels/cpu/simd/lane_sums-inl.h"

#ifndef WINNOW_KERNELS_CPU_MEAN_COSINES_ONCE_
#define WINNOW_KERNELS_CPU_MEAN_COSINES_ONCE_
namespace winnow::kernels::cpu {

// Floats of a row, padded to the widest vector.
constexpr int PaddedDim(int dim) { return (dim + 15) / 16 * 16; }

// Rows per part. Float sums cover only the rows of one part and parts add up in double, so that
// sums over many rows stay precise.
constexpr size_t kRowsAtOnce = 32;

// Sums of squares outside these bounds lose precision in float.
constexpr float kSmallSquare = 1e-20F, kLargeSquare = 1e30F;
constexpr bool IsExtremeSquare(float square) {
  return !(square >= kSmallSquare && square <= kLargeSquare);
}

inline double ExactLength(const float* row, int dim) {
  double square = 0;
  for (int k = 0; k < dim; ++k) square += static_cast<double>(row[k]) * row[k];
  return std::sqrt(square);
}

// Adds the unit vector of a row with an extreme sum of squares to `sum`. Returns -1 / length (the
// negative sign marks the row), or 0 for a zero row.
inline float AddExtremeUnit(const float* row, int dim, float* sum) {
  const double length = ExactLength(row, dim);
  if (length == 0) return 0;
  for (int k = 0; k < dim; ++k) sum[k] += static_cast<float>(row[k] / length);
  return static_cast<float>(-1 / length);
}

// 0, 1, ...
constexpr auto kFirstRows = [] {
  std::array<int32_t, kRowsAtOnce> rows;
  std::iota(rows.begin(), rows.end(), 0);
  return rows;
}();

struct MeanKernels {
  // sum_units and scale_by_dots process the first kRowsAtOnce rows and prefetch the next.
  // sum [PaddedDim(dim)] = sum of the unit vectors of `rows`; inverse [row] = 1 / length, negative
  // if the sum of squares is extreme.
  void (*sum_units)(const HostHeadRows& head, std::span<const int32_t> rows, float* sum,
                    double* inverse);
  // scaled[i] *= dot product of row i and `direction` [PaddedDim(dim)], which is padded with zeros.
  void (*scale_by_dots)(const HostHeadRows& head, std::span<const int32_t> rows,
                        const float* direction, double* scaled);
  // sum [dim] = sum of the n rows of `parts` [n, PaddedDim(dim)], in order.
  void (*add_parts)(const float* parts, size_t n, std::span<double> sum);
};

}  // namespace winnow::kernels::cpu
#endif

HWY_BEFORE_NAMESPACE();
namespace winnow::kernels::cpu::HWY_NAMESPACE {

// Elements [k, k + kLanes) of a row of any dimension; zeros follow the last one.
template <class Elements>
struct TailedAt {
  static constexpr int kDim = 0;  // any dimension
  const std::byte* row;
  int dim;
  HWY_INLINE VF operator()(int k) const {
    const std::byte* from = row + k * Elements::kBytes;
    if (k + kLanes <= dim) return Elements::Load(from);
    return k < dim ? LoadFirst<Elements>(from, dim - k) : hn::Zero(DF());
  }
};
// The same for rows of whole vectors. kDimension: the dimension if known at compile time, otherwise
// 0.
template <class Elements, int kDimension>
struct WholeAt {
  static constexpr int kDim = kDimension;
  const std::byte* row;
  int dim;
  HWY_INLINE VF operator()(int k) const { return Elements::Load(row + k * Elements::kBytes); }
};
template <class Block>
struct BlockAt {
  static constexpr int kDim = 0;
  const std::byte* row;
  int dim;
  HWY_INLINE VF operator()(int k) const {
    if (k >= dim) return hn::Zero(DF());
    const std::byte* block = row + k / 32 * Block::kBytes;
    return hn::Mul(Block::Load(block, k % 32 / kLanes), LoadScale(block));
  }
};

// Rows may lie anywhere, so hardware prefetchers cannot predict the next one.
constexpr size_t kRowsAhead = 32;

// out[i] = sum of factor(i, k, x) * x over the vectors x of row i, where x starts at element k.
// Computes the first n rows, rounded up to whole vectors of `out`.
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
        const int dim = At::kDim > 0 ? At::kDim : head.dim;
#pragma GCC unroll 8
        for (int k = 0; k < dim; k += kLanes) {
          const VF x = at(k);
          sums[i] = hn::MulAdd(x, factor(row, k, x), sums[i]);
        }
      }
      fours[four] = SumFour(sums[0], sums[1], sums[2], sums[3]);
    }
    hn::StoreU(SumBlocks(fours), df, out + first);
  }
}

// Adds rows times their factors to kVectors vectors of `sum`, starting at element k. Those vectors
// stay in registers.
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

// SumUnits when some rows have an extreme sum of squares: computes their lengths in double.
template <class At>
HWY_NOINLINE void SumExtremeUnits(const HostHeadRows& head, std::span<const int32_t> rows,
                                  const float* squares, float* sum, double* inverse) {
  std::vector<float> row(static_cast<size_t>(PaddedDim(head.dim)));
  for (size_t i = 0; i < rows.size(); ++i) {
    if (IsExtremeSquare(squares[i])) {
      const At at{head.Row(rows[i]), head.dim};
      for (int k = 0; k < head.dim; k += kLanes) hn::StoreU(at(k), DF(), row.data() + k);
      inverse[i] = AddExtremeUnit(row.data(), head.dim, sum);
    } else {
      const float factor = 1 / std::sqrt(squares[i]);
      AddScaledRows<At>(head, rows.subspan(i, 1), &factor, sum);
      inverse[i] = factor;
    }
  }
}

template <class At>
void SumUnits(const HostHeadRows& head, std::span<const int32_t> all_rows, float* sum,
              double* inverse) {
  const DF df;
  const auto rows = all_rows.first(std::min(kRowsAtOnce, all_rows.size()));
  CheckRows(head, rows);
  // Lengths first, then the sum, so that no row waits for another row's square root. If the
  // dimension is known, the unpacked rows are kept as floats in between.
  alignas(64) float factors[kRowsAtOnce];
  alignas(64) float unpacked[kRowsAtOnce * std::max(At::kDim, 1)];
  SumRows<At>(
      head, all_rows, rows.size(),
      [&](size_t row, int k, VF x) HWY_ATTR {
        if constexpr (At::kDim > 0) hn::Store(x, df, unpacked + row * At::kDim + k);
        return x;
      },
      factors);
  bool extreme = false;
  for (size_t i = 0; i < rows.size(); ++i) extreme |= IsExtremeSquare(factors[i]);
  std::fill_n(sum, PaddedDim(head.dim), 0.0F);
  if (extreme) return SumExtremeUnits<At>(head, rows, factors, sum, inverse);
  for (size_t i = 0; i < rows.size(); i += kLanes) {
    const VF square = hn::Load(df, factors + i);
    hn::Store(hn::Div(hn::Set(df, 1.0F), hn::Sqrt(square)), df, factors + i);
  }
  if constexpr (At::kDim > 0) {
    const HostHeadRows floats = {reinterpret_cast<std::byte*>(unpacked), kRowsAtOnce, At::kDim,
                                 TensorType::kF32, At::kDim * int64_t{sizeof(float)}};
    AddScaledRows<WholeAt<F32Elements, At::kDim>>(floats, std::span(kFirstRows).first(rows.size()),
                                                  factors, sum);
  } else {
    AddScaledRows<At>(head, rows, factors, sum);
  }
  std::copy_n(factors, rows.size(), inverse);
}

template <class At>
void ScaleByDots(const HostHeadRows& head, std::span<const int32_t> rows, const float* direction,
                 double* scaled) {
  const DF df;
  const size_t n = std::min(kRowsAtOnce, rows.size());
  alignas(64) float dots[kRowsAtOnce];
  SumRows<At>(
      head, rows, n, [&](size_t, int k, VF) HWY_ATTR { return hn::LoadU(df, direction + k); },
      dots);
  for (size_t i = 0; i < n; ++i) scaled[i] *= dots[i];
}

void AddParts(const float* parts, size_t n, std::span<double> sum) {
  std::ranges::fill(sum, 0.0);
  const int padded = PaddedDim(static_cast<int>(sum.size()));
  for (size_t part = 0; part < n; ++part, parts += padded) {
    for (size_t k = 0; k < sum.size(); ++k) sum[k] += parts[k];
  }
}

template <class At>
constexpr MeanKernels kMeanKernels = {
    .sum_units = SumUnits<At>, .scale_by_dots = ScaleByDots<At>, .add_parts = AddParts};

template <class Elements>
const MeanKernels& ElementKernels(int dim) {
  if (dim == 64) return kMeanKernels<WholeAt<Elements, 64>>;
  if (dim == 128) return kMeanKernels<WholeAt<Elements, 128>>;
  return dim == PaddedDim(dim) ? kMeanKernels<WholeAt<Elements, 0>>
                               : kMeanKernels<TailedAt<Elements>>;
}

const MeanKernels& MeanTable(TensorType type, int dim) {
  switch (type) {
    case TensorType::kF32:
      return ElementKernels<F32Elements>(dim);
    case TensorType::kF16:
      return ElementKernels<F16Elements>(dim);
    case TensorType::kBF16:
      return ElementKernels<Bf16Elements>(dim);
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

// Cosine in double; 0 for a zero row.
double ExactCosine(const HostHeadRows& head, int32_t row, const float* direction) {
  std::vector<float> floats(static_cast<size_t>(head.dim));
  Dequantize(head.type, {head.Row(row), static_cast<size_t>(head.row_bytes)}, floats);
  double dot = 0;
  for (size_t k = 0; k < floats.size(); ++k) dot += static_cast<double>(floats[k]) * direction[k];
  const double length = ExactLength(floats.data(), head.dim);
  return length == 0 ? 0 : dot / length;
}

// The comparison of one head, with its working memory between the passes.
class Comparison {
 public:
  // floats [Floats(head)]
  Comparison(const HostMeanCosines& head, const MeanKernels& kernels, float* floats)
      : head_(head), kernels_(kernels), direction_(floats), sums_(floats + Padded(head)) {}

  static size_t Parts(const HostMeanCosines& head) {
    return (head.rows.size() + kRowsAtOnce - 1) / kRowsAtOnce;
  }
  static size_t Floats(const HostMeanCosines& head) { return (1 + Parts(head)) * Padded(head); }

  // Sums the unit vectors of a part. Leaves 1 / length of each row in `cosines` for ComparePart.
  void SumPart(size_t part) const {
    kernels_.sum_units(head_.head, Rows(part), sums_ + part * Padded(head_), Cosines(part).data());
  }
  // Sets direction_ to length 1, or to zeros if the mean is zero. Adds the parts in order, so that
  // the number of threads changes no bit.
  void FindDirection() const {
    const auto dim = static_cast<size_t>(head_.head.dim);
    constexpr size_t kUsualDim = 256;  // up to this, no heap allocation
    double usual[kUsualDim];
    std::vector<double> large(dim > kUsualDim ? dim : 0);
    const std::span<double> sum(dim > kUsualDim ? large.data() : usual, dim);
    kernels_.add_parts(sums_, Parts(head_), sum);
    double square = 0;
    for (const double x : sum) square += x * x;
    std::fill_n(direction_, Padded(head_), 0.0F);
    if (square == 0) return;
    const double length = std::sqrt(square);
    for (size_t k = 0; k < dim; ++k) direction_[k] = static_cast<float>(sum[k] / length);
  }
  void ComparePart(size_t part) const {
    const std::span<double> out = Cosines(part);
    const bool extreme = std::ranges::any_of(out, [](double inverse) { return inverse < 0; });
    if (!extreme) return kernels_.scale_by_dots(head_.head, Rows(part), direction_, out.data());
    for (size_t i = 0; i < out.size(); ++i) {
      out[i] = ExactCosine(head_.head, Rows(part)[i], direction_);
    }
  }

 private:
  static size_t Padded(const HostMeanCosines& head) {
    return static_cast<size_t>(PaddedDim(head.head.dim));
  }
  // The part's rows and all after them, which the kernels prefetch.
  std::span<const int32_t> Rows(size_t part) const {
    return head_.rows.subspan(part * kRowsAtOnce);
  }
  std::span<double> Cosines(size_t part) const {
    const size_t first = part * kRowsAtOnce;
    return head_.cosines.subspan(first, std::min(kRowsAtOnce, head_.rows.size() - first));
  }

  const HostMeanCosines& head_;
  const MeanKernels& kernels_;
  float* direction_;  // [PaddedDim(dim)]
  float* sums_;       // [part, PaddedDim(dim)]
};

}  // namespace

void CosinesToMean(std::span<const HostMeanCosines> heads, int64_t target,
                   std::vector<float>& scratch, ThreadPool& pool) {
  size_t n_parts = 0, n_floats = 0;  // of the largest head
  for (const HostMeanCosines& head : heads) {
    WINNOW_CHECK(head.cosines.size() == head.rows.size());
    n_parts = std::max(n_parts, Comparison::Parts(head));
    n_floats = std::max(n_floats, Comparison::Floats(head));
  }
  if (n_parts == 0) return;
  if (scratch.size() < heads.size() * n_floats) scratch.resize(heads.size() * n_floats);
  const auto comparison = [&](size_t i) {
    const HostHeadRows& rows = heads[i].head;
    const auto table = ForTarget(HWY_DISPATCH_TABLE(MeanTable), target);
    return Comparison(heads[i], table(rows.type, rows.dim), scratch.data() + i * n_floats);
  };
  // Partition like attention, which has just read these rows, so that a thread finds them in its
  // cache.
  constexpr int64_t kPartsTogether = 4;
  const auto each_part = [&](const auto& use) {
    const auto n_items = static_cast<int64_t>(heads.size() * n_parts);
    const auto use_item = [&](int64_t item, int) {
      const size_t i = static_cast<size_t>(item) / n_parts;
      const size_t part = static_cast<size_t>(item) % n_parts;
      if (part < Comparison::Parts(heads[i])) use(comparison(i), part);
    };
    pool.ParallelFor(n_items, use_item, kPartsTogether, ThreadPool::Schedule::kStaticStealing);
  };
  each_part([](const Comparison& head, size_t part) { head.SumPart(part); });
  for (size_t i = 0; i < heads.size(); ++i) {
    if (!heads[i].rows.empty()) comparison(i).FindDirection();
  }
  each_part([](const Comparison& head, size_t part) { head.ComparePart(part); });
}

}  // namespace winnow::kernels::cpu
#endif
