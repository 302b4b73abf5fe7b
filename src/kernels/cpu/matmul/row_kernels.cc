#include "kernels/cpu/matmul/row_kernels.h"

#include <algorithm>
#include <type_traits>

#include "kernels/cpu/simd/targets.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/matmul/row_kernels.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/matmul/floats-inl.h"
#include "kernels/cpu/matmul/weights-inl.h"

HWY_BEFORE_NAMESPACE();
namespace winnow::kernels::cpu::HWY_NAMESPACE {
namespace {  // names recur in other files

namespace hn = hwy::HWY_NAMESPACE;
using VF8 = hn::Vec<DF8>;
using V32 = hn::Vec<D32>;

HWY_INLINE void StoreResult(const MatMulJob& job, int64_t token, int64_t row, float value) {
  if (job.bias != nullptr) value += job.bias[row];
  float& out = job.out[token * job.out_stride + row];
  out = job.accumulate ? out + value : value;
}

// To hide the latency of additions, a row has several sums: block i adds to sum i % N, and in large
// blocks the groups alternate between two sums. Weights are prefetched far ahead, because the
// hardware prefetchers come too late.

// --- quantised ---

// sum += one part of a group times the same part of the input.
template <class P>
HWY_INLINE V32 DotPart(V32 sum, V8 w, const int8_t* x) {
  const auto vx = hn::LoadU(DS8(), x);
  if constexpr (P::kSigned) {
    return Dot4Signed(sum, hn::BitCast(DS8(), w), vx);
  } else {
    return Dot4(sum, w, vx);
  }
}

// sum += scale * (weights . x) for one group of 32, spread over the lanes. `scales`: weight scale
// times input scale, one per group or one per half.
template <class P>
HWY_INLINE VF8 AddGroup(VF8 sum, const Bytes32& w, const int8_t* x, const float* scales) {
  const DF8 df;
  const V32 zero = hn::Zero(D32());
  if constexpr (kParts == 1) {
    const V32 dot = DotPart<P>(zero, w.part[0], x);
    auto scale = hn::Set(df, scales[0]);
    if constexpr (P::kScalesPerGroup == 2) {
      scale = hn::ConcatUpperLower(df, hn::Set(df, scales[1]), scale);
    }
    return hn::MulAdd(hn::ConvertTo(df, dot), scale, sum);
  } else if constexpr (P::kScalesPerGroup == 1) {
    const V32 dot = DotPart<P>(zero, w.part[0], x);
    return hn::MulAdd(hn::ConvertTo(df, DotPart<P>(dot, w.part[kParts - 1], x + 16)),
                      hn::Set(df, scales[0]), sum);
  } else {
    for (int i = 0; i < kParts; ++i) {
      const V32 dot = DotPart<P>(zero, w.part[i], x + 16 * i);
      sum = hn::MulAdd(hn::ConvertTo(df, dot), hn::Set(df, scales[i]), sum);
    }
    return sum;
  }
}

// Adds group G and all later groups of one block, alternating between two sums.
template <class P, int G = 0>
HWY_INLINE void AddGroups(VF8& sum, VF8& next_sum, const typename P::Block& block, const int8_t* x,
                          const float* scales) {
  if constexpr (G < P::kGroups) {
    sum = AddGroup<P>(sum, P::template Load<G>(block), x + 32 * G, scales + G * P::kScalesPerGroup);
    AddGroups<P, G + 1>(next_sum, sum, block, x, scales);
  }
}

// The input's scales for the weight's scales i, i + 1, ...
template <class P>
HWY_INLINE VF8 LoadScales(const float* x_scale, int i) {
  if constexpr (P::kScalesPerGroup == 1) {
    return hn::LoadU(DF8(), x_scale + i);
  } else {  // each twice
    const hn::FixedTag<uint64_t, 4 / kParts> d64;
    const hn::Rebind<uint32_t, decltype(d64)> d32;
    const auto scales = hn::LoadU(d32, reinterpret_cast<const uint32_t*>(x_scale + i / 2));
    const auto wide = hn::PromoteTo(d64, scales);
    return hn::BitCast(DF8(), hn::Or(wide, hn::ShiftLeft<32>(wide)));
  }
}

template <class P>
inline constexpr bool kOneScale = P::kGroups* P::kScalesPerGroup == 1;

// Blocks of a row per iteration.
template <class P>
inline constexpr int kBlocksAtOnce = kOneScale<P> ? 4 : 2;

inline constexpr int kRowSums = 4;  // sums of a row's products, used in turn

// A row's running sums: of products; and of mins times input sums, or of scales times input sums,
// which the weights' offset multiplies at the end.
template <class P>
struct RowSums {
  VF8 products[kRowSums];
  hn::Vec<std::conditional_t<kOneScale<P>, DF4, DF8>> correction;
};

// The input of some blocks.
struct BlockInput {
  const int8_t* q;
  const float* scale;
  const float* sum;  // [scale of the weights]
};

// Adds N blocks with one scale each, N = 4 or 1.
template <class P, int N>
HWY_INLINE void AddSmallBlocks(const typename P::Block* blocks, const BlockInput& x,
                               RowSums<P>& sums) {
  const DF4 df;
  uint64_t d = 0, m = 0;
  for (int i = 0; i < N; ++i) {
    d |= uint64_t{blocks[i].d} << (16 * i);
    if constexpr (P::kHasMin) m |= uint64_t{blocks[i].m} << (16 * i);
  }
  const auto scales = LoadHalves(d);
  const auto x_scale = N == 1 ? hn::Set(df, x.scale[0]) : hn::LoadU(df, x.scale);
  alignas(16) float products[4];
  hn::Store(hn::Mul(scales, x_scale), df, products);
  if constexpr (P::kHasMin || P::kOffset != 0) {
    const auto x_sum = N == 1 ? hn::Set(df, x.sum[0]) : hn::LoadU(df, x.sum);
    sums.correction = hn::MulAdd(P::kHasMin ? LoadHalves(m) : scales, x_sum, sums.correction);
  }
  for (int i = 0; i < N; ++i) {
    AddGroups<P>(sums.products[i], sums.products[i], blocks[i], x.q + 32 * i, products + i);
  }
}

// Adds N blocks with a scale per group or half group.
template <class P, int N>
HWY_INLINE void AddLargeBlocks(const typename P::Block* blocks, const BlockInput& x,
                               RowSums<P>& sums) {
  const DF8 df;
  constexpr int kScales = P::kGroups * P::kScalesPerGroup;
#pragma GCC unroll 2
  for (int n = 0; n < N; ++n) {
    float s[kScales], m[kScales], scales[kScales];
    P::Scales(blocks[n], s, m);
    constexpr int kStep = 8 / kParts;
    for (int i = 0; i < kScales; i += kStep) {
      const VF8 vs = hn::LoadU(df, s + i);
      hn::StoreU(hn::Mul(vs, LoadScales<P>(x.scale + n * P::kGroups, i)), df, scales + i);
      if constexpr (P::kHasMin || P::kOffset != 0) {
        sums.correction = hn::MulAdd(P::kHasMin ? hn::LoadU(df, m + i) : vs,
                                     hn::LoadU(df, x.sum + n * kScales + i), sums.correction);
      }
    }
    AddGroups<P>(sums.products[2 * n], sums.products[2 * n + 1], blocks[n],
                 x.q + 32 * P::kGroups * n, scales);
  }
}

template <class P, int N>
HWY_INLINE void AddBlocks(const typename P::Block* blocks, const BlockInput& x, RowSums<P>& sums) {
  if constexpr (kOneScale<P>) {
    AddSmallBlocks<P, N>(blocks, x, sums);
  } else {
    AddLargeBlocks<P, N>(blocks, x, sums);
  }
}

// One weight row times one input row.
template <class P>
HWY_NOINLINE void Dot(const MatMulJob& job, int64_t row, int64_t token, const QuantizedInput& x,
                      const PrefetchPolicy& prefetch) {
  using Block = typename P::Block;
  constexpr int kScales = P::kGroups * P::kScalesPerGroup;
  constexpr int kN = kBlocksAtOnce<P>;
  const int64_t n_blocks = x.cols / (32 * P::kGroups);
  const auto* blocks = reinterpret_cast<const Block*>(job.weight) + row * n_blocks;
  const int8_t* q = x.q + token * x.cols;
  const float* scale = x.scale + token * x.cols / 32;
  const float* sum =
      P::kScalesPerGroup == 1 ? x.sum32 + token * x.cols / 32 : x.sum16 + token * x.cols / 16;
  const auto input = [&](int64_t b) {
    return BlockInput{q + b * 32 * P::kGroups, scale + b * P::kGroups, sum + b * kScales};
  };
  RowSums<P> sums;
  for (VF8& products : sums.products) products = hn::Zero(DF8());
  sums.correction = hn::Zero(hn::DFromV<decltype(sums.correction)>());
  int64_t b = 0;
  for (; b + kN <= n_blocks; b += kN) {
    prefetch.PrefetchAhead(blocks + b, kN * static_cast<int64_t>(sizeof(Block)));
    AddBlocks<P, kN>(blocks + b, input(b), sums);
  }
  for (; b < n_blocks; ++b) AddBlocks<P, 1>(blocks + b, input(b), sums);

  VF8 products = sums.products[0];
  for (int n = 1; n < kRowSums; ++n) products = hn::Add(products, sums.products[n]);
  float total = hn::GetLane(hn::SumOfLanes(DF8(), products));
  if constexpr (P::kHasMin || P::kOffset != 0) {
    constexpr float kFactor = P::kHasMin ? 1.0f : -static_cast<float>(P::kOffset);
    const hn::DFromV<decltype(sums.correction)> d;
    total += kFactor * hn::GetLane(hn::SumOfLanes(d, sums.correction));
  }
  StoreResult(job, token, row, total);
}

template <class P>
void DotRows(const MatMulJob& job, const WeightRows& rows, const QuantizedInput& x) {
  rows.ForEach(job.rows, [&](int64_t row) {
    for (int64_t token = 0; token < x.rows; ++token) Dot<P>(job, row, token, x, rows.prefetch);
  });
}

void Quantized(const MatMulJob& job, const WeightRows& rows, const QuantizedInput& x) {
  WithPolicy(job.type, [&](auto policy) HWY_ATTR { DotRows<decltype(policy)>(job, rows, x); });
}

// --- floats ---

// Sums of a float product, used in turn. With 16 lanes, two sums are enough: memory latency hides
// that of additions, and weights are read 5 % faster than with eight (docs/performance.md).
constexpr int kFloatSums = hn::MaxLanes(DF()) >= 16 ? 2 : 8;

// Finishes a product: `sums` hold the columns before k.
template <class L, int N>
HWY_INLINE float Total(VF (&sums)[N], const typename L::Element* w, const float* v, int64_t k,
                       int64_t cols) {
  const auto lanes = static_cast<int64_t>(hn::Lanes(DF()));
  for (; k + lanes <= cols; k += lanes) {
    sums[0] = hn::MulAdd(L::Vector(w + k), hn::LoadU(DF(), v + k), sums[0]);
  }
  VF all = sums[0];
  for (int i = 1; i < N; ++i) all = hn::Add(all, sums[i]);
  float total = hn::GetLane(hn::SumOfLanes(DF(), all));
  for (; k < cols; ++k) total += L::Scalar(w[k]) * v[k];
  return total;
}

// One weight row times T input rows.
template <class L, int T>
HWY_INLINE void DotFloats(const MatMulJob& job, int64_t row, int64_t token, const MatMulInput& x,
                          const PrefetchPolicy& prefetch) {
  constexpr int kSums = kFloatSums / T;  // of each input row
  using Element = typename L::Element;
  const auto lanes = static_cast<int64_t>(hn::Lanes(DF()));
  const auto* w = reinterpret_cast<const Element*>(job.weight) + row * x.cols;
  const float* v = x.x + token * x.stride;
  VF sums[T][kSums];
  for (auto& of_row : sums) {
    for (VF& sum : of_row) sum = hn::Zero(DF());
  }
  int64_t k = 0;
  for (; k + kSums * lanes <= x.cols; k += kSums * lanes) {
    prefetch.PrefetchAhead(w + k,
                           kSums * static_cast<int64_t>(hn::MaxLanes(DF()) * sizeof(Element)));
    for (int i = 0; i < kSums; ++i) {
      const int64_t at = k + i * lanes;
      const VF vw = L::Vector(w + at);
      for (int t = 0; t < T; ++t) {
        sums[t][i] = hn::MulAdd(vw, hn::LoadU(DF(), v + t * x.stride + at), sums[t][i]);
      }
    }
  }
  for (int t = 0; t < T; ++t) {
    StoreResult(job, token + t, row, Total<L>(sums[t], w, v + t * x.stride, k, x.cols));
  }
}

constexpr int kRowsTogether = 8;
constexpr int64_t kPieceBytes = 4096;

// Adjacent rows times a single input row, in pieces: the first piece of all rows, then the second
// of all rows, and so on, so that all rows use a piece of the input while it is in L1. Same bits as
// DotFloats.
template <class L>
void DotInPieces(const MatMulJob& job, int64_t first_row, int64_t n_rows, const MatMulInput& x,
                 const PrefetchPolicy& prefetch) {
  using Element = typename L::Element;
  constexpr auto kElement = static_cast<int64_t>(sizeof(Element));
  constexpr auto kLanes = static_cast<int64_t>(hn::MaxLanes(DF()));
  constexpr int64_t kPiece = kPieceBytes / kElement, kStep = kFloatSums * kLanes;
  static_assert(kPiece % kStep == 0);
  const auto* weights = reinterpret_cast<const Element*>(job.weight) + first_row * x.cols;
  const int64_t n_cols = x.cols / kStep * kStep;  // Total() adds the rest
  const int64_t n_pieces = (n_cols + kPiece - 1) / kPiece * n_rows;
  // The i-th piece in reading order; past the last one, the first pieces of the following rows.
  const auto piece_at = [&](int64_t i) {
    if (i >= n_pieces) return weights + (n_rows + i - n_pieces) * x.cols;
    return weights + i % n_rows * x.cols + i / n_rows * kPiece;
  };
  const int64_t n_ahead = std::max<int64_t>(1, prefetch.distance_bytes / kPieceBytes);
  const int64_t near = prefetch.l1_distance_bytes / kElement;
  HWY_ALIGN float kept[kRowsTogether * kStep] = {};  // sums of all rows
  VF sums[kFloatSums];
  for (int64_t i = 0; i < n_pieces; ++i) {
    const int64_t first = i / n_rows * kPiece, n = std::min(kPiece, n_cols - first);
    const Element *w = piece_at(i), *next = piece_at(i + 1), *far = piece_at(i + n_ahead);
    float* row_sums = kept + i % n_rows * kStep;
    for (int s = 0; s < kFloatSums; ++s) sums[s] = hn::Load(DF(), row_sums + s * kLanes);
    for (int64_t k = 0; k < n; k += kStep) {
      prefetch.Fetch(far + k, kStep * kElement);
      if (near > 0) {
        PrefetchPolicy::PrefetchIntoL1(k + near < n ? w + k + near : next + (k + near - n),
                                       kStep * kElement);
      }
      for (int s = 0; s < kFloatSums; ++s) {
        const int64_t at = k + s * kLanes;
        sums[s] = hn::MulAdd(L::Vector(w + at), hn::LoadU(DF(), x.x + first + at), sums[s]);
      }
    }
    for (int s = 0; s < kFloatSums; ++s) hn::Store(sums[s], DF(), row_sums + s * kLanes);
  }
  for (int64_t row = 0; row < n_rows; ++row) {
    for (int s = 0; s < kFloatSums; ++s) {
      sums[s] = hn::Load(DF(), kept + row * kStep + s * kLanes);
    }
    const float total = Total<L>(sums, weights + row * x.cols, x.x, n_cols, x.cols);
    StoreResult(job, 0, first_row + row, total);
  }
}

template <class L>
void DotFloatRows(const MatMulJob& job, const WeightRows& rows, const MatMulInput& x) {
  // Longer input rows do not stay in L1 while weights stream through it.
  constexpr int64_t kLongBytes = 12 << 10;
  if (x.rows == 1 && rows.prefetch.streams == 1 &&
      x.cols * static_cast<int64_t>(sizeof(float)) > kLongBytes) {
    const int64_t end = std::min(rows.first + rows.n, job.rows);
    for (int64_t row = rows.first; row < end; row += kRowsTogether) {
      DotInPieces<L>(job, row, std::min<int64_t>(kRowsTogether, end - row), x, rows.prefetch);
    }
    return;
  }
  rows.ForEach(job.rows, [&](int64_t row) HWY_ATTR {
    int64_t token = 0;
    for (; token + 2 <= x.rows; token += 2) DotFloats<L, 2>(job, row, token, x, rows.prefetch);
    if (token < x.rows) DotFloats<L, 1>(job, row, token, x, rows.prefetch);
  });
}

void Floats(const MatMulJob& job, const WeightRows& rows, const MatMulInput& x) {
  WithLoader(job.type, [&](auto loader) HWY_ATTR { DotFloatRows<decltype(loader)>(job, rows, x); });
}

}  // namespace
}  // namespace winnow::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace winnow::kernels::cpu {

HWY_EXPORT(Quantized);
HWY_EXPORT(Floats);

RowProducts RowProductsFor(int64_t target) {
  return {.quantized = ForTarget(HWY_DISPATCH_TABLE(Quantized), target),
          .floats = ForTarget(HWY_DISPATCH_TABLE(Floats), target)};
}

}  // namespace winnow::kernels::cpu
#endif
