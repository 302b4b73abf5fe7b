#define WINNOW_FLOAT_KERNELS  // see simd/targets.h
#include "kernels/cpu/rows.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "base/half.h"
#include "kernels/cpu/simd/targets.h"
#include "kernels/hadamard.h"
#include "kernels/overflow.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/rows.cc"
#include <hwy/foreach_target.h>
#include <hwy/highway.h>

#include "kernels/cpu/simd/exp-inl.h"
#include "kernels/cpu/simd/quantize-inl.h"
#include "kernels/cpu/simd/rotate-inl.h"

HWY_BEFORE_NAMESPACE();
namespace winnow::kernels::cpu::HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Threads claim rows in runs of about this many floats, large enough to hide the cost of a claim.
constexpr int64_t kFloatsPerRun = 4096;
int64_t Grain(int64_t cols) {
  return std::max<int64_t>(1, kFloatsPerRun / std::max<int64_t>(cols, 1));
}

// out[i] = f(a[i], b[i]) with vectors; a partial last vector goes through a padded copy.
template <class F>
HWY_INLINE void Map2(const float* a, const float* b, int64_t n, float* out, const F& f) {
  const DF d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    hn::StoreU(f(hn::LoadU(d, a + i), hn::LoadU(d, b + i)), d, out + i);
  }
  if (i == n) return;
  HWY_ALIGN float tail_a[hn::MaxLanes(d)] = {};
  HWY_ALIGN float tail_b[hn::MaxLanes(d)] = {};
  std::copy(a + i, a + n, tail_a);
  std::copy(b + i, b + n, tail_b);
  hn::Store(f(hn::Load(d, tail_a), hn::Load(d, tail_b)), d, tail_a);
  std::copy(tail_a, tail_a + (n - i), out + i);
}

// Sum of f(x[i]): in four float vectors over runs of at most 256 floats, then in double over the
// runs.
template <class F>
HWY_INLINE double Sum(const float* x, int64_t n, const F& f) {
  const DF d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  double total = 0;
  int64_t i = 0;
  while (i + 4 * lanes <= n) {
    const int64_t end = std::min(n, i + 256);
    VF s0 = hn::Zero(d), s1 = hn::Zero(d), s2 = hn::Zero(d), s3 = hn::Zero(d);
    for (; i + 4 * lanes <= end; i += 4 * lanes) {
      s0 = hn::Add(s0, f(hn::LoadU(d, x + i)));
      s1 = hn::Add(s1, f(hn::LoadU(d, x + i + lanes)));
      s2 = hn::Add(s2, f(hn::LoadU(d, x + i + 2 * lanes)));
      s3 = hn::Add(s3, f(hn::LoadU(d, x + i + 3 * lanes)));
    }
    total += hn::GetLane(hn::SumOfLanes(d, hn::Add(hn::Add(s0, s1), hn::Add(s2, s3))));
  }
  for (; i < n; ++i) total += hn::GetLane(f(hn::Set(d, x[i])));
  return total;
}

void NormalizeRms(const float* x, const float* weight, int64_t n, float epsilon, float* out) {
  const DF d;
  const double squares = Sum(x, n, [](VF v) HWY_ATTR { return hn::Mul(v, v); });
  const auto scale = static_cast<float>(1 / std::sqrt(squares / static_cast<double>(n) + epsilon));
  const VF vscale = hn::Set(d, scale);
  Map2(x, weight, n, out, [vscale](VF v, VF w) HWY_ATTR { return hn::Mul(hn::Mul(v, vscale), w); });
}

void RmsNorm(const HostRows& x, const float* weight, float epsilon, const HostRows& out,
             ThreadPool& pool) {
  pool.ParallelFor(
      x.rows,
      [&](int64_t row, int) { NormalizeRms(x.Row(row), weight, x.cols, epsilon, out.Row(row)); },
      Grain(x.cols));
}

void RmsNormHeads(const HostRows& x, const float* weight, int64_t head_dim, float epsilon,
                  ThreadPool& pool) {
  pool.ParallelFor(
      x.rows,
      [&](int64_t row, int) {
        for (int64_t first = 0; first < x.cols; first += head_dim) {
          float* head = x.Row(row) + first;
          NormalizeRms(head, weight, head_dim, epsilon, head);
        }
      },
      Grain(x.cols));
}

void NormalizeMean(const float* x, const float* weight, const float* bias, int64_t n, float epsilon,
                   float* out) {
  const DF d;
  const double mean = Sum(x, n, [](VF v) HWY_ATTR { return v; }) / static_cast<double>(n);
  const VF vmean = hn::Set(d, static_cast<float>(mean));
  const double squares = Sum(x, n, [vmean](VF v) HWY_ATTR {
    const VF centred = hn::Sub(v, vmean);
    return hn::Mul(centred, centred);
  });
  const VF vscale =
      hn::Set(d, static_cast<float>(1 / std::sqrt(squares / static_cast<double>(n) + epsilon)));
  Map2(x, weight, n, out, [vmean, vscale](VF v, VF w) HWY_ATTR {
    return hn::Mul(hn::Mul(hn::Sub(v, vmean), vscale), w);
  });
  if (bias != nullptr) Map2(out, bias, n, out, [](VF v, VF b) HWY_ATTR { return hn::Add(v, b); });
}

void LayerNorm(const HostRows& x, const float* weight, const float* bias, float epsilon,
               const HostRows& out, ThreadPool& pool) {
  pool.ParallelFor(
      x.rows,
      [&](int64_t row, int) {
        NormalizeMean(x.Row(row), weight, bias, x.cols, epsilon, out.Row(row));
      },
      Grain(x.cols));
}

// v * sigmoid(s)
HWY_INLINE VF TimesSigmoid(VF v, VF s) {
  const DF d;
  return hn::Div(v, hn::Add(hn::Set(d, 1.0f), Exp(d, hn::Neg(s))));
}

HWY_INLINE VF Silu(VF v) { return TimesSigmoid(v, v); }

// (1 + tanh u) / 2 is sigmoid(2u).
HWY_INLINE VF Gelu(VF v) {
  const DF d;
  constexpr float kTwiceSqrtTwoOverPi = 1.5957691216057308f;
  const VF cubic = hn::MulAdd(hn::Mul(hn::Set(d, 0.044715f), hn::Mul(v, v)), v, v);
  return TimesSigmoid(v, hn::Mul(hn::Set(d, kTwiceSqrtTwoOverPi), cubic));
}

void ActivateRun(Activation activation, const float* gate, const float* up, int64_t n, float* out) {
  if (activation == Activation::kSilu) {
    if (up == nullptr) {
      Map2(gate, gate, n, out, [](VF g, VF) HWY_ATTR { return Silu(g); });
    } else {
      Map2(gate, up, n, out, [](VF g, VF u) HWY_ATTR { return hn::Mul(Silu(g), u); });
    }
  } else {
    if (up == nullptr) {
      Map2(gate, gate, n, out, [](VF g, VF) HWY_ATTR { return Gelu(g); });
    } else {
      Map2(gate, up, n, out, [](VF g, VF u) HWY_ATTR { return hn::Mul(Gelu(g), u); });
    }
  }
}

void Activate(Activation activation, const HostRows& gate, const HostRows& up, const HostRows& out,
              ThreadPool& pool) {
  // Split rows too: a decode step has a single row, and its exponentials are worth distributing.
  const int64_t n_runs = (gate.cols + kFloatsPerRun - 1) / kFloatsPerRun;
  pool.ParallelFor(
      gate.rows * n_runs,
      [&](int64_t item, int) {
        const int64_t row = item / n_runs;
        const int64_t first = item % n_runs * kFloatsPerRun;
        ActivateRun(activation, gate.Row(row) + first,
                    up.data == nullptr ? nullptr : up.Row(row) + first,
                    std::min(kFloatsPerRun, gate.cols - first), out.Row(row) + first);
      },
      Grain(gate.cols));
}

void Rope(const HostRows& x, const HostRope& rope, ThreadPool& pool) {
  const int64_t n_pairs = rope.n_rotated / 2;
  pool.ParallelFor(
      x.rows,
      [&](int64_t row, int) {
        const float* cosines = rope.table.Row(rope.positions[row]);
        const float* sines = cosines + n_pairs;
        for (int64_t first = 0; first < x.cols; first += rope.head_dim) {
          float* head = x.Row(row) + first;
          RotateInPlace(rope.interleaved, head, cosines, sines, n_pairs);
        }
      },
      Grain(x.cols));
}

// Transforms one head's vector in blocks of a power of two. Adds and subtracts in the order of
// kernels/hadamard.cc, for the same bits.
void TransformBlocks(float* head, int64_t dim) {
  const DF d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const int64_t block = HadamardBlock(dim);
  const auto scale = static_cast<float>(1 / std::sqrt(static_cast<double>(block)));
  for (float* first = head; first < head + dim; first += block) {
    for (int64_t reach = 1; reach < block; reach *= 2) {
      for (int64_t pairs = 0; pairs < block; pairs += 2 * reach) {
        float* a = first + pairs;
        float* b = a + reach;
        int64_t i = 0;
        for (; i + lanes <= reach; i += lanes) {
          const VF x = hn::LoadU(d, a + i);
          const VF y = hn::LoadU(d, b + i);
          hn::StoreU(hn::Add(x, y), d, a + i);
          hn::StoreU(hn::Sub(x, y), d, b + i);
        }
        for (; i < reach; ++i) {
          const float x = a[i];
          const float y = b[i];
          a[i] = x + y;
          b[i] = x - y;
        }
      }
    }
  }
  for (int64_t i = 0; i < dim; ++i) head[i] *= scale;
}

void Hadamard(const HostRows& x, int64_t head_dim, ThreadPool& pool) {
  pool.ParallelFor(
      x.rows,
      [&](int64_t row, int) {
        for (int64_t first = 0; first < x.cols; first += head_dim) {
          TransformBlocks(x.Row(row) + first, head_dim);
        }
      },
      Grain(x.cols));
}

void StoreHalves(const float* x, int64_t n, uint16_t* out) {
  int64_t i = 0;
#if HWY_TARGET <= \
    HWY_AVX2  // older x86 has no conversion instruction, and Highway's emulation truncates
  const DF d;
  const hn::Rebind<hwy::float16_t, DF> d16;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  for (; i + lanes <= n; i += lanes) {
    hn::StoreU(hn::DemoteTo(d16, hn::LoadU(d, x + i)), d16,
               reinterpret_cast<hwy::float16_t*>(out + i));
  }
#endif
  for (; i < n; ++i) out[i] = FloatToHalf(x[i]);
}

void StoreRow(TensorType type, const float* x, int64_t n, std::byte* out) {
  switch (type) {
    case TensorType::kF32:
      std::memcpy(out, x, n * sizeof(float));
      return;
    case TensorType::kF16:
      StoreHalves(x, n, reinterpret_cast<uint16_t*>(out));
      return;
    case TensorType::kBF16:
      StoreBfloats(x, n, reinterpret_cast<uint16_t*>(out));
      return;
    case TensorType::kQ8_0:
      StoreQ8(x, n, reinterpret_cast<BlockQ8_0*>(out));
      return;
    case TensorType::kQ4_0:
      StoreQ4(x, n, reinterpret_cast<BlockQ4_0*>(out));
      return;
    default:
      WINNOW_CHECK(IsCacheType(type));
  }
}

// Number of values with magnitude >= limit. Nearly always there is none, which costs only one
// comparison per vector.
int64_t CountFrom(float limit, const float* x, int64_t n) {
  const DF d;
  const auto lanes = static_cast<int64_t>(hn::Lanes(d));
  const auto limits = hn::Set(d, limit);
  auto reached = hn::FirstN(d, 0);
  int64_t i = 0;
  for (; i + lanes <= n; i += lanes) {
    reached = hn::Or(reached, hn::Ge(hn::Abs(hn::LoadU(d, x + i)), limits));
  }
  bool any = !hn::AllFalse(d, reached);
  for (; i < n; ++i) any = any || std::fabs(x[i]) >= limit;
  if (!any) return 0;
  return std::count_if(x, x + n, [limit](float value) { return std::fabs(value) >= limit; });
}

void StoreRows(const HostRows& x, const HostStoreTarget& target, ThreadPool& pool) {
  const auto n_heads = static_cast<int64_t>(target.heads.size());
  const int64_t dim = x.cols / n_heads;
  const int64_t row_bytes = gguf::RowBytes(target.type, dim);
  const float limit = CacheLimit(target.type);
  pool.ParallelFor(
      x.rows,
      [&](int64_t row, int) {
        const int64_t n_overflowed = CountFrom(limit, x.Row(row), n_heads * dim);
        if (n_overflowed > 0) *target.n_overflowed += n_overflowed;
        for (int64_t head = 0; head < n_heads; ++head) {
          StoreRow(target.type, x.Row(row) + head * dim, dim,
                   target.heads[head] + (target.first_slot[head] + row) * row_bytes);
        }
      },
      Grain(x.cols));
}

const RowKernels& Table() {
  static constexpr RowKernels kTable = {
      .rms_norm = RmsNorm,
      .rms_norm_heads = RmsNormHeads,
      .layer_norm = LayerNorm,
      .activate = Activate,
      .rope = Rope,
      .hadamard = Hadamard,
      .store_rows = StoreRows,
  };
  return kTable;
}

}  // namespace winnow::kernels::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace winnow::kernels::cpu {
HWY_EXPORT(Table);
const RowKernels& RowKernelsFor(int64_t target) {
  return ForTarget(HWY_DISPATCH_TABLE(Table), target)();
}
}  // namespace winnow::kernels::cpu
#endif
