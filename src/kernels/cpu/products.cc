#define WINNOW_FLOAT_KERNELS  // see simd/targets.h
#include "kernels/cpu/products.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>

#include "kernels/cpu/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/products.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/simd/exp-inl.h"

HWY_BEFORE_NAMESPACE();
namespace winnow::kernels::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;
using DF = hn::ScalableTag<float>;
using VF = hn::Vec<DF>;

// Rows and vectors of a tile of the result. The tile stays in registers: with the loaded operands
// it fits the 16 registers of the smaller instruction sets.
constexpr int64_t kTileRows = 6;
constexpr int64_t kTileVectors = 2;

template <int64_t kRows, int64_t kVectors>
HWY_INLINE void MultiplyTile(const HostProduct& p, int64_t row, int64_t col) {
  const DF df;
  const auto lanes = static_cast<int64_t>(hn::Lanes(df));
  const float* a = p.a.data + row * p.a.stride;
  const float* b = p.b.data + col;
  float* out = p.out.data + row * p.out.stride + col;
  std::array<std::array<VF, kVectors>, kRows> sums;
  for (int64_t r = 0; r < kRows; ++r) {
    for (int64_t v = 0; v < kVectors; ++v) {
      sums[r][v] = p.accumulate ? hn::LoadU(df, out + r * p.out.stride + v * lanes) : hn::Zero(df);
    }
  }
  for (int64_t k = 0; k < p.a.cols; ++k) {
    std::array<VF, kVectors> from;
    for (int64_t v = 0; v < kVectors; ++v) from[v] = hn::LoadU(df, b + k * p.b.stride + v * lanes);
    for (int64_t r = 0; r < kRows; ++r) {
      const VF factor = hn::Set(df, a[r * p.a.stride + k]);
      for (int64_t v = 0; v < kVectors; ++v) {
        sums[r][v] = hn::MulAdd(factor, from[v], sums[r][v]);
      }
    }
  }
  for (int64_t r = 0; r < kRows; ++r) {
    for (int64_t v = 0; v < kVectors; ++v) {
      hn::StoreU(sums[r][v], df, out + r * p.out.stride + v * lanes);
    }
  }
}

// All rows of some columns of the result. Those columns of b stay in L1 meanwhile.
template <int64_t kVectors>
HWY_INLINE void MultiplyColumns(const HostProduct& p, int64_t col) {
  int64_t row = 0;
  for (; row + kTileRows <= p.out.rows; row += kTileRows) {
    MultiplyTile<kTileRows, kVectors>(p, row, col);
  }
  for (; row < p.out.rows; ++row) MultiplyTile<1, kVectors>(p, row, col);
}

void Multiply(const HostProduct& p) {
  Check(p);
  const auto lanes = static_cast<int64_t>(hn::Lanes(DF()));
  int64_t col = 0;
  for (; col + kTileVectors * lanes <= p.out.cols; col += kTileVectors * lanes) {
    MultiplyColumns<kTileVectors>(p, col);
  }
  for (; col + lanes <= p.out.cols; col += lanes) MultiplyColumns<1>(p, col);
  if (col == p.out.cols) return;
  for (int64_t row = 0; row < p.out.rows; ++row) {
    for (int64_t c = col; c < p.out.cols; ++c) {
      float& out = p.out.data[row * p.out.stride + c];
      float sum = p.accumulate ? out : 0;
      for (int64_t k = 0; k < p.a.cols; ++k) {
        sum = std::fma(p.a.data[row * p.a.stride + k], p.b.data[k * p.b.stride + c], sum);
      }
      out = sum;
    }
  }
}

// e^min(x, kMaxExponent); 0 for NaN.
HWY_INLINE VF ExpOrZero(VF x) {
  const DF df;
  const VF limited = hn::Min(x, hn::Set(df, kMaxExponent));
  return hn::IfThenElseZero(hn::Eq(x, x), Exp(df, limited));
}

void ExpMinusMax(std::span<float> x, float max) {
  const DF df;
  const size_t lanes = hn::Lanes(df);
  const VF largest = hn::Set(df, max);
  size_t i = 0;
  for (; i + lanes <= x.size(); i += lanes) {
    hn::StoreU(ExpOrZero(hn::Sub(hn::LoadU(df, &x[i]), largest)), df, &x[i]);
  }
  for (; i < x.size(); ++i) x[i] = hn::GetLane(ExpOrZero(hn::Set(df, x[i] - max)));
}

const ProductKernels& ProductTable() {
  static constexpr ProductKernels kTable = {.multiply = Multiply, .exp_below = ExpMinusMax};
  return kTable;
}

}  // namespace winnow::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace winnow::kernels::cpu {

HWY_EXPORT(ProductTable);

const ProductKernels& ProductKernelsFor(int64_t target) {
  return ForTarget(HWY_DISPATCH_TABLE(ProductTable), target)();
}

}  // namespace winnow::kernels::cpu
#endif
